"""The outputs of a dataset by their names: what each makes of the clips of some draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ...errors import UsageError, WrongTypeError
from ...readers.clip_output import ClipOutput
from ...readers.frame_format import Geometry
from ..which_clips.keyed import key
from .outputs import RANDOM_CROPS, Output


@dataclass(frozen=True)
class Views:
    """The geometries of some clips in each output."""

    geometries: Mapping[str, Sequence[Geometry]]
    drawn: Mapping[str, str]
    """For each output without `shared`, what follows "crop" and "flip" in the names of an item's
    entries: "" where there is one such output, else "_" and its name."""

    def of(self, places: Sequence[int]) -> Views:
        """Those of some of the clips."""
        chosen = {name: [made[place] for place in places] for name, made in self.geometries.items()}
        return Views(chosen, self.drawn)

    def columns(self) -> dict[str, torch.Tensor]:
        """What was drawn, as items have it: `crop`, int64, (clips, 4), and `flip`, bool, (clips,)."""
        columns = {}
        for name, suffix in self.drawn.items():
            made = self.geometries[name]
            regions = [(each.top, each.left, each.height, each.width) for each in made]
            columns[f"crop{suffix}"] = torch.tensor(regions, dtype=torch.int64, device="cpu").view(-1, 4)
            columns[f"flip{suffix}"] = torch.tensor([each.flip for each in made], dtype=torch.bool, device="cpu")
        return columns


class Outputs:
    """The outputs of a dataset by their names.

    `taken` are the other columns that items have. UsageError for a name that items use twice, and for a wrong `shared`.
    """

    def __init__(self, outputs: Mapping[str, Output], *, taken: Sequence[str], seed: int) -> None:
        if not isinstance(outputs, Mapping) or not outputs:
            raise WrongTypeError(
                f'outputs is {outputs!r}; it is a dict of shortgop.Output by name, such as {{"frames": Output()}}'
            )
        for name, output in outputs.items():
            if not isinstance(name, str) or not isinstance(output, Output):
                raise WrongTypeError(f"output {name!r} is {output!r}; it has to be a shortgop.Output with a name")
            if name in taken:
                raise UsageError(f"output {name!r}: items have something else of that name; give it another one")
            source = None if output.shared is None else outputs.get(output.shared)
            if output.shared is not None and (source is None or source.shared is not None):
                drawing = [each for each, other in outputs.items() if other.shared is None]
                raise UsageError(
                    f"output {name!r}: shared is {output.shared!r}; it can be the name of an output with a crop of its "
                    f"own: {', '.join(drawing) or 'there is none'}"
                )
        self.named = dict(outputs)
        self._keys = {name: key(seed, "view", name) for name, output in outputs.items() if output.shared is None}
        self._suffixes = {name: f"_{name}" if len(self._keys) > 1 else "" for name in self._keys}
        drawn = {f"{word}{suffix}" for suffix in self._suffixes.values() for word in ("crop", "flip")}
        for name in (*outputs, *taken):
            if name in drawn:
                raise UsageError(f"{name!r} is what items call a crop or a flip that was drawn; choose another name")

    @property
    def have_sizes_of_clips(self) -> bool:
        """Whether an output has a size that depends on the clip."""
        return any(callable(output.size) for output in self.named.values())

    @property
    def are_random(self) -> bool:
        """Whether an output has a random crop or flip."""
        return any(output.crop in RANDOM_CROPS or 0 < output.flip < 1 for output in self.named.values())

    def views(
        self,
        draws: Sequence[int],
        passes: Sequence[tuple[int, int]],
        sizes: Sequence[tuple[int, int]],
        ids: Sequence[str],
        counts: Sequence[int] | None = None,
    ) -> Views:
        """The geometries of clips of these draws. `passes` are which time the videos are gone through, and the clip's
        place in the table of these, for outputs with same_for="video"; `sizes` are (height, width) of their frames,
        `ids` their videos', and `counts` how many frames they have, where a size depends on it."""
        made: dict[str, list[Geometry]] = {}
        counts = [1] * len(draws) if counts is None else counts
        # Those that others share the crop of come first.
        for name in (*self._keys, *(name for name in self.named if name not in self._keys)):
            output, made[name] = self.named[name], []
            for place, (draw, size, video) in enumerate(zip(draws, sizes, ids, strict=True)):
                count = counts[place] if output.frames is None else len(output.frames)
                try:
                    if output.shared is None:
                        # No id: cameras and paired datasets have the same places, and other ids.
                        of = (draw,) if output.same_for == "clip" else passes[place]
                        geometry = output.sized(count, *size).geometry(*size, key(self._keys[name], *of))
                    else:
                        part = made[output.shared][place]
                        geometry = output.sized(count, part.height, part.width).sharing(part)
                except UsageError as error:
                    raise type(error)(f"output {name!r}, video {video!r}: {error.message}", video=video) from None
                made[name].append(geometry)
        return Views(made, self._suffixes)

    def positions(self, num_frames: int) -> dict[str, tuple[int, ...] | None]:
        """The places of each output's frames in clips of so many; UsageError when they have no such frame."""
        places: dict[str, tuple[int, ...] | None] = {}
        for name, output in self.named.items():
            frames = output.frames
            if frames is not None and not -num_frames <= min(frames) <= max(frames) < num_frames:
                raise UsageError(
                    f"output {name!r}: frames is {list(frames)}, and clips have {num_frames} frames, 0 to "
                    f"{num_frames - 1}"
                )
            places[name] = None if frames is None else tuple(frame % num_frames for frame in frames)
        return places

    def requests(self, views: Views, num_frames: int) -> dict[str, ClipOutput]:
        """What the reader is asked for; UsageError when an output has frames of several sizes."""
        positions = self.positions(num_frames)
        requests = {}
        for name, output in self.named.items():
            geometries = views.geometries[name]
            sizes = {geometry.size for geometry in geometries}
            if len(sizes) > 1:
                remedy = (
                    "size is a function: take the collate_fn of a DataLoader, or collate={name: list} of ClipLoader"
                    if callable(output.size)
                    else "give it size=(height, width)"
                )
                raise UsageError(f"output {name!r}: frames of sizes {sorted(sizes)} do not go into one batch; {remedy}")
            requests[name] = ClipOutput(output.pixels, geometries, positions[name], output.layout)
        return requests
