"""Stretches and sections of an MP4 of which only a part is fetched: its index says where their packets lie.

The file at the path has its full length. What was not fetched reads as zeros, so the demuxer gives every packet its
times and its place, as the index has them, and only some packets their content. What is made from them is proved as for
any stretch: ffmpeg reports which frames it showed. Wherever something differs from what was expected, the whole file is
fetched, and prepared in the ordinary way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import Protocol

import av
import numpy as np

from ..manifests.ragged import Array
from ..storage.opened_objects import coalesced
from .probing.containers.sample_entry import states_fragments
from .probing.headers.access_units import HeaderReader
from .probing.opening import Readable, open_contents, open_source, packets_of, video_stream
from .probing.probe import probe
from .probing.probed_frames import first_frames
from .probing.source_video import SourceVideo
from .timing.pieces import Piece, Run, runs_of

# Behind the last frame of a run so many packets are fetched: ffmpeg reads ahead, and decoders put frames out late.
PACKETS_BEHIND = 60
# Where this share of the file is wanted, it is fetched whole.
_MAX_SHARE = 0.5
# Ranges so close to each other are fetched as one.
_MAX_GAP_BYTES = 1 << 16
# In containers that are seeked by decode times, ffmpeg seeks 3/23 s before the place that it is given.
_SEEKS_BEFORE_SECONDS = Fraction(1, 5)
# How often the runs are planned anew because a keyframe proved to be none from which everything decodes.
_MAX_PLANS = 10


Range = tuple[int, int]


class NeedsWholeFileError(Exception):
    """The stretches cannot be made, or not for certain, from a part of the file."""


@dataclass(frozen=True)
class Needed:
    """What has to be there of a file to encode a section of it: bytes [start, stop). The section reads `packets`
    packets of the video, from the one on at which it starts reading."""

    ranges: tuple[Range, ...]
    packets: int


class PartlyFetched(Protocol):
    """A local file of full length, of which parts are fetched when they are needed."""

    path: Path
    num_bytes: int

    def reader(self) -> BufferedIOBase:
        """A file object that fetches what is read."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        ...

    def fetch(self, ranges: Sequence[Range]) -> None:
        """Fetch the ranges [start, stop)."""
        ...


class Noted:
    """A file object that notes what is read of another one."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell
        self.ranges: list[Range] = []

    def read(self, size: int) -> bytes:
        start = self._file.tell()
        data = self._file.read(size)
        if self.ranges and self.ranges[-1][1] == start:
            start = self.ranges.pop()[0]
        self.ranges.append((start, self._file.tell()))
        return data


def probe_by_index(part: PartlyFetched) -> SourceVideo:
    """Probe an MP4 by its index and a few of its frames. NeedsWholeFileError for any other file."""
    path = str(part.path)
    try:
        with open_contents(part.reader()) as container:
            stream = video_stream(path, container)
            # The index of a file in fragments is spread over all of it.
            if "mp4" not in container.format.name or not stream.frames or states_fragments(path):
                raise NeedsWholeFileError("its index is not in one place")
            stream_index, num_packets = stream.index, stream.frames
        # Fetches what the same function reads again from the file at the path.
        first_frames(path, stream_index, open_contents(part.reader()))
    except av.error.FFmpegError as error:
        raise NeedsWholeFileError("it does not open as a video") from error
    source = probe(path, by_index=True)
    if source.stream_index != stream_index or len(source.places) != num_packets:
        raise NeedsWholeFileError("its index has other packets than its header states")
    return source


def fetched_runs(part: PartlyFetched, source: SourceVideo, pieces: Sequence[Piece], lead_frames: int) -> list[Run]:
    """The runs of ffmpeg that encode the pieces, once the packets that they read are fetched."""
    if source.pts is None:
        raise NeedsWholeFileError("its index does not say when its frames are shown")
    entries = source.entries
    for _ in range(_MAX_PLANS):
        runs = runs_of(pieces, source.pts, entries, source.timebase, lead_frames)
        begins = [_entry_of(run, source) for run in runs]
        wrong = _no_entries(part, source, [pts for pts in begins if pts is not None])
        if not wrong:
            break
        entries = np.setdiff1d(entries, wrong)
    else:
        raise NeedsWholeFileError("its keyframes are not what its index calls them")
    ranges = [packet_range(source.places, pts, run.pieces[-1].last_pts) for pts, run in zip(begins, runs, strict=True)]
    if sum(stop - start for start, stop in ranges) > _MAX_SHARE * part.num_bytes:
        raise NeedsWholeFileError("most of it is wanted")
    part.fetch(ranges)
    return [at_its_entry(run) for run in runs]


def at_its_entry(run: Run) -> Run:
    """The run, with its entry as the only place where decoding may begin: the packets of earlier entries were not
    fetched."""
    seek = run.seek
    return run if seek is None else replace(run, seek=replace(seek, frames_before=frozenset({min(seek.frames_before)})))


def packet_range(places: Array, first_pts: int | None, last_pts: int) -> Range:
    """The bytes [start, stop) that hold the packets from the one with `first_pts` (None: the first one) to those behind
    the last one that is shown up to `last_pts`.

    `places` has a row (pts, position, bytes) for each packet, in decode order.
    """
    first, stop = _packets(places, first_pts, last_pts)
    read = places[first : stop + PACKETS_BEHIND]
    return int(read[:, 1].min()), int((read[:, 1] + read[:, 2]).max())


def _packets(places: Array, first_pts: int | None, last_pts: int) -> Range:
    first = 0 if first_pts is None else int(np.flatnonzero(places[:, 0] == first_pts)[0])
    return first, int(np.flatnonzero(places[:, 0] <= last_pts)[-1]) + 1


def needed_of(run: Run, source: SourceVideo, opening: Sequence[Range]) -> Needed:
    """What a run of ffmpeg needs of a file that was probed by its index. `opening` is what opening the file takes."""
    first_pts, last_pts = _entry_of(run, source), run.pieces[-1].last_pts
    first, stop = _packets(source.places, first_pts, last_pts)
    return Needed(_joined([*opening, packet_range(source.places, first_pts, last_pts)]), stop - first)


def noted_need(source: SourceVideo, pts: Array, run: Run) -> Needed:
    """What a run of ffmpeg needs of a file that is complete on this machine: the bytes that are read when the packets
    of the run are demuxed.

    `pts` are those of all frames. Any container that can be seeked will do.
    """
    first_pts, last_pts = _entry_of(run, source), run.pieces[-1].last_pts
    first = int(pts[0]) if first_pts is None else first_pts
    left = int(np.searchsorted(pts, last_pts, side="right") - np.searchsorted(pts, first))
    packets = 0
    with Path(source.path).open("rb") as file:
        noted = Noted(file)
        with open_contents(noted) as container:
            stream = video_stream(source.path, container)
            if first_pts is not None:
                container.seek(first_pts - int(_SEEKS_BEFORE_SECONDS / source.timebase), stream=stream)
            sized = (packet for packet in packets_of(container, stream) if packet.size)
            for packet in sized:
                reached = packets or packet.pts == first_pts or first_pts is None
                packets += 1 if reached else 0
                left -= 1 if packet.pts is not None and first <= packet.pts <= last_pts else 0
                if not left:
                    break
            deque(islice(sized, PACKETS_BEHIND), maxlen=0)
    return Needed(_joined(noted.ranges), packets)


def _joined(ranges: Sequence[Range]) -> tuple[Range, ...]:
    return tuple(coalesced(ranges, _MAX_GAP_BYTES))


def opening_ranges(part: PartlyFetched, source: SourceVideo) -> list[Range]:
    """The bytes that are read to open a file and to decode its first frame; they are fetched then."""
    noted = Noted(part.reader())
    with open_contents(noted) as container:
        for packet in packets_of(container, video_stream(source.path, container)):
            with suppress(av.error.InvalidDataError):
                if packet.decode():
                    break
    return noted.ranges


def _entry_of(run: Run, source: SourceVideo) -> int | None:
    return None if run.seek is None else int(run.seek.seconds / source.timebase)


def _no_entries(part: PartlyFetched, source: SourceVideo, begins: Sequence[int]) -> list[int]:
    """Those of the packets with these pts whose headers say that a decoder may not start there."""
    if source.codec not in ("h264", "hevc") or not begins:
        return []
    with open_source(source.path) as container:
        extradata = video_stream(source.path, container).codec_context.extradata
    wrong = []
    for pts in begins:
        _, position, size = source.places[np.flatnonzero(source.places[:, 0] == pts)[0]].tolist()
        unit = HeaderReader(source.codec, extradata).read(part.read(position, position + size))
        if not unit.is_entry:
            wrong.append(pts)
    return wrong
