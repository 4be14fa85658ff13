"""Fragments of an MP4 that FFmpeg leaves out, or that are missing, without a message.

FFmpeg leaves out the samples of a fragment that are decoded no later than the last one of the fragment before. A pause
in a recording looks like a fragment that is missing, but for the numbers of the fragments (mfhd).
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ....manifests.mp4 import Box, boxes, child, children
from .sample_entry import DAMAGED_BOXES

_TFHD_BASE, _TFHD_ENTRY, _TFHD_DURATION = 0x1, 0x2, 0x8
_TRUN_OFFSET, _TRUN_FIRST_FLAGS = 0x1, 0x4
_TRUN_DURATION, _TRUN_COLUMNS = 0x100, (0x100, 0x200, 0x400, 0x800)
# So many bytes behind its boxes tell a fragment from another one with samples of the same sizes.
_COMPARED_BYTES = 1024
# A moof or moov that is longer is damaged.
_MAX_HEADER_BYTES = 1 << 26
_FEWEST_STEPS = 3


@dataclass(frozen=True, slots=True)
class Fragment:
    """The samples of one track in one fragment: the position of its moof, its number, the ticks at which its first and
    its last sample are decoded and at which it ends, and what tells it from others. `after_moov`: another moov lies
    between the fragment before and this one."""

    position: int
    sequence: int
    first: int
    last: int
    end: int
    num_samples: int
    checksum: int
    after_moov: bool = False

    @property
    def interval(self) -> float:
        return (self.end - self.first) / max(1, self.num_samples)


@dataclass(frozen=True)
class Unread:
    """`left_out`: how many samples FFmpeg leaves out, other than those of fragments that the file has twice.
    `is_joined`: they belong to another MP4 that follows in the file. `missing_before`: the positions of fragments that
    follow missing ones, `missing`: about how many samples these had."""

    left_out: int = 0
    is_joined: bool = False
    missing_before: tuple[int, ...] = ()
    missing: int = 0


def unread_of(fragments: Sequence[Fragment], sequences: Sequence[int]) -> Unread:
    """What is not read of a track with these fragments. `sequences`: the numbers of all fragments of the file, whatever
    their tracks, in its order."""
    steps = [after - before for before, after in pairwise(sequences)]
    counts_by_one = len(steps) < _FEWEST_STEPS or 2 * steps.count(1) >= len(steps)
    numbers = sorted(set(sequences))
    seen: set[tuple[int, int]] = set()
    left_out, is_joined, missing, missing_before = 0, False, 0, []
    for number, fragment in enumerate(fragments):
        before = fragments[number - 1] if number else None
        is_repeated = (fragment.first, fragment.checksum) in seen
        seen.add((fragment.first, fragment.checksum))
        if before is None:
            continue
        if fragment.first <= before.last and not is_repeated:
            behind = int((before.last - fragment.first) / fragment.interval) + 1 if fragment.interval else 1
            left_out += min(behind, fragment.num_samples)
            is_joined = is_joined or fragment.after_moov
        gap = fragment.first - before.end
        there = bisect_left(numbers, fragment.sequence) - bisect_left(numbers, before.sequence)
        is_missing = counts_by_one and fragment.sequence - before.sequence > there
        if is_missing and before.interval and gap > before.interval / 2:
            missing_before.append(fragment.position)
            missing += max(1, round(gap / before.interval))
    return Unread(left_out, is_joined, tuple(missing_before), missing)


def unread_fragments(path: str, track_id: int) -> Unread:
    """What is not read of a track of a fragmented MP4; nothing where its fragments do not say when they begin."""
    try:
        return unread_of(*_fragments_of(path, track_id))
    except DAMAGED_BOXES:
        return Unread()


def _fragments_of(path: str, track_id: int) -> tuple[list[Fragment], list[int]]:
    """The fragments of a track, and the numbers of those of all tracks."""
    fragments: list[Fragment] = []
    sequences: list[int] = []
    default_ticks, after_moov = 0, False
    with Path(path).open("rb") as file:
        for kind, position, length in top_boxes(path):
            if kind not in (b"moov", b"moof") or length > _MAX_HEADER_BYTES:
                continue
            file.seek(position)
            data = file.read(length)
            top = next(boxes(data))
            if kind == b"moov":
                default_ticks, after_moov = _default_ticks(data, top, track_id), bool(fragments)
                continue
            sequences.append(_sequence(data, top))
            runs = [traf for traf in children(data, top, b"traf") if _track_of(data, traf) == track_id]
            if runs:
                checksum = zlib.crc32(file.read(_COMPARED_BYTES))
                fragments.append(
                    _fragment(
                        data, runs, default_ticks,
                        position=position, sequence=sequences[-1], checksum=checksum, after_moov=after_moov,
                    )
                )  # fmt: skip
                after_moov = False
    return fragments, sequences


def ends_in_moof(path: str) -> bool:
    """Whether an MP4 ends within the index of a fragment, behind whole ones."""
    kinds, end = [], 0
    for kind, position, length in top_boxes(path):
        kinds.append(kind)
        end = position + length
    is_last = kinds[-1:] == [b"moof"] and end > Path(path).stat().st_size
    return is_last and b"moov" in kinds and kinds.count(b"moof") > 1


def lacks_moov(path: str, begin: int = 0) -> bool:
    """Whether a fragment lies in a file from `begin` on, without a moov before it that says how it is read."""
    kinds = (kind for kind, *_ in top_boxes(path, begin))
    return next((kind for kind in kinds if kind in (b"moov", b"moof")), b"moov") == b"moof"


def first_times(path: str, begin: int = 0, part_bytes: int = 0) -> dict[int, int]:
    """When the first sample of each track in the first fragment of a part of a file is decoded, by the numbers of
    tracks; nothing where it does not say so, or has none. `part_bytes`: 0 for all from `begin` on."""
    with Path(path).open("rb") as file:
        for kind, position, length in top_boxes(path, begin):
            if part_bytes and position >= begin + part_bytes:
                break
            if kind == b"moof" and length <= _MAX_HEADER_BYTES:
                file.seek(position)
                data = file.read(length)
                try:
                    runs = list(children(data, next(boxes(data)), b"traf"))
                    # Of several runs of a track the first counts.
                    return {_track_of(data, traf): _decode_ticks(data, traf) for traf in reversed(runs)}
                except DAMAGED_BOXES:
                    return {}
    return {}


def _fragment(
    data: bytes,
    runs: Sequence[Box],
    default_ticks: int,
    *,
    position: int,
    sequence: int,
    checksum: int,
    after_moov: bool,
) -> Fragment:
    """The fragment of a moof, `data`, of which the trafs `runs` belong to the track."""
    first, count, ticks, last_ticks = _decode_ticks(data, runs[0]), 0, 0, 0
    for traf in runs:
        usual_ticks = _usual_ticks(data, traf, default_ticks)
        for trun in children(data, traf, b"trun"):
            checksum = zlib.crc32(data[trun.body + 4 : trun.stop], checksum)
            samples, run_ticks, last = _run_ticks(data, trun, usual_ticks)
            count, ticks, last_ticks = count + samples, ticks + run_ticks, last if samples else last_ticks
    end = first + ticks
    return Fragment(position, sequence, first, end - last_ticks, end, count, checksum, after_moov)


def _run_ticks(data: bytes, trun: Box, usual_ticks: int) -> tuple[int, int, int]:
    """How many samples a run has, and how many ticks all of them last, and the last one. Where each lasts the usual
    ticks, a damaged run may state billions of samples in a few bytes."""
    flags, count = struct.unpack_from(">II", data, trun.body)
    if not flags & _TRUN_DURATION:
        return count, count * usual_ticks, usual_ticks
    at = trun.body + 8 + 4 * bool(flags & _TRUN_OFFSET) + 4 * bool(flags & _TRUN_FIRST_FLAGS)
    columns = sum(bool(flags & column) for column in _TRUN_COLUMNS)
    lasting = struct.unpack_from(f">{count * columns}I", data, at)[::columns]
    return count, sum(lasting), lasting[-1] if lasting else 0


def _usual_ticks(data: bytes, traf: Box, default_ticks: int) -> int:
    tfhd = child(data, traf, b"tfhd")
    (flags,) = struct.unpack_from(">I", data, tfhd.body)
    if not flags & _TFHD_DURATION:
        return default_ticks
    at = tfhd.body + 8 + 8 * bool(flags & _TFHD_BASE) + 4 * bool(flags & _TFHD_ENTRY)
    return int(struct.unpack_from(">I", data, at)[0])


def _decode_ticks(data: bytes, traf: Box) -> int:
    tfdt = child(data, traf, b"tfdt")
    return int(struct.unpack_from(">Q" if data[tfdt.body] == 1 else ">I", data, tfdt.body + 4)[0])


def _sequence(data: bytes, moof: Box) -> int:
    return int(struct.unpack_from(">I", data, child(data, moof, b"mfhd").body + 4)[0])


def _track_of(data: bytes, traf: Box) -> int:
    return int(struct.unpack_from(">I", data, child(data, traf, b"tfhd").body + 4)[0])


def _default_ticks(data: bytes, moov: Box, track_id: int) -> int:
    """How many ticks a sample of a track lasts where its fragment does not say it (trex)."""
    for mvex in children(data, moov, b"mvex"):
        for trex in children(data, mvex, b"trex"):
            track, _entry, ticks = struct.unpack_from(">III", data, trex.body + 4)
            if track == track_id:
                return int(ticks)
    return 0


def top_boxes(path: str, begin: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """The kind, the position and the length of each box of an MP4 that lies in no other, from that at `begin` on."""
    size, at = Path(path).stat().st_size, begin
    with Path(path).open("rb") as file:
        while at + 8 <= size:
            file.seek(at)
            header = file.read(16)
            length, kind = int.from_bytes(header[:4]), header[4:8]
            if length == 1:
                length = int.from_bytes(header[8:])
            elif not length:
                # It goes on to the end of the file.
                length = size - at
            yield kind, at, length
            if length < 8:
                return
            at += length
