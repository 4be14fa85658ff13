"""How a job reads its sources beyond their paths: which columns of a list are times, the rate of picture sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from ...errors import UsageError
from ...prep.profile import parse_fps


@dataclass(frozen=True)
class Importing:
    """`cuts`: the names of two columns of lists. They hold the times in seconds at which the stretch of a row's file
    that becomes a video starts and ends; with `in_frames` its first frame and the one after its last. `image_fps`: the
    frames per second of sequences of pictures; without it there are none. `tell` is called with a line of text for each
    argument that is taken for another tool's format."""

    cuts: tuple[str, str] | None = None
    image_fps: Fraction | None = None
    tell: Callable[[str], None] = field(default=lambda _text: None, compare=False)
    in_frames: bool = False

    def __post_init__(self) -> None:
        if self.cuts is not None and (len(set(self.cuts)) < 2 or not all(self.cuts) or {"path", "id"} & set(self.cuts)):
            raise UsageError(
                f"--cuts is {','.join(self.cuts)}; it takes the names of two columns of the list, other than path and "
                "id, with the start and the end of each stretch in seconds, --cuts start,end, or in frames: --cuts "
                "start,end,frames"
            )


PLAIN = Importing()


def importing_of(
    cuts: str | None, image_fps: str | None = None, tell: Callable[[str], None] | None = None
) -> Importing:
    """The settings as the command line spells them. UsageError for text that makes no sense."""
    rate = None
    if image_fps is not None:
        try:
            rate = parse_fps(image_fps)
        except UsageError:
            rate = None
        if rate is None or rate <= 0:
            raise UsageError(f"--image-fps is {image_fps!r}; it takes a rate: 30, 29.97, 30000/1001")
    names = tuple(name.strip() for name in cuts.split(",")) if cuts is not None else ()
    in_frames = len(names) == 3 and names[2] == "frames"
    if cuts is not None and len(names) != 2 and not in_frames:
        raise UsageError(
            f"--cuts is {cuts!r}; it takes two names of columns: --cuts start,end, or with numbers of frames in them: "
            "--cuts start,end,frames"
        )
    return Importing((names[0], names[1]) if names else None, rate, tell or PLAIN.tell, in_frames)
