"""Breaks real files in many ways and holds what prep makes of them against what was burnt into their frames.

`run_case(sources, number)` breaks one file and prepares it, first as it is and, where that is refused as damaged, with
--salvage. It ends as a dataset whose frames show what its timeline says, or with a SourceError; anything else is an
AssertionError that names the case. The same number is the same case on every machine with the same encoders.

    python tests/fuzzing.py --first 0 --cases 5000
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np

from shortgop.errors import SourceError
from shortgop.manifests.layout import create
from shortgop.manifests.tables import Manifest
from shortgop.prep.encode import prepare_video
from shortgop.prep.ffmpeg import find_ffmpeg
from shortgop.prep.manifest_rows import Identity
from shortgop.prep.opening import packets_of, video_stream
from shortgop.prep.options import Options, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.shards import ShardWriter
from synthetic import constant_rate_pts, frame_to_rgb, make_video, read_number

FRAMES, GOP = 32, 8
# A case that takes longer than this hangs.
_SECONDS_PER_CASE = 120
_OPEN_GOP = {"preset": "veryfast", "x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
_SOURCES: Mapping[str, dict[str, Any]] = {
    "index_last.mp4": {},
    "index_first.mp4": {"container_options": {"movflags": "faststart"}},
    "fragments.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "h264.mov": {},
    "h264.mkv": {},
    "hevc.mkv": {"codec": "libx265"},
    "vp9.webm": {"codec": "libvpx-vp9"},
    "vp8.webm": {"codec": "libvpx"},
    "h264.ts": {},
    "open_gop.ts": {"options": _OPEN_GOP},
    "hevc.ts": {"codec": "libx265"},
    "mpeg2.ts": {"codec": "mpeg2video"},
    "mpeg4.avi": {"codec": "mpeg4"},
    "plain.avi": {"codec": "mpeg4", "b_frames": 0},
    "h264.avi": {},
    "h264.flv": {},
    "mpeg2.mpg": {"codec": "mpeg2video"},
}


@dataclass(frozen=True)
class Whole:
    """A source as it was made. `numbers` are those its frames show, by pts; `payloads` the same by a packet's bytes;
    `is_timed`: packets
    say when their frames are shown; `packets` are the byte ranges of its packets, in decode order."""

    path: Path
    codec: str
    numbers: dict[int, int]
    payloads: dict[bytes, int]
    is_timed: bool
    packets: list[tuple[int, int]]


@dataclass
class Outcome:
    """What became of a case."""

    name: str
    kind: str
    verdict: str
    reason: str = ""
    frames: int = 0
    unreadable: int = 0
    stale: int = 0
    salvaged: int = 0
    notes: list[str] = field(default_factory=list)


def make_sources(folder: Path) -> list[Whole]:
    """Write one source of every kind."""
    wholes = []
    for name, how in _SOURCES.items():
        pts = constant_rate_pts(Fraction(25), FRAMES)
        audio = Fraction(0) if name in ("h264.mkv", "h264.ts", "plain.avi") else None
        video = make_video(folder / name, pts=pts, timebase=Fraction(1, 25), gop=GOP, audio_start=audio, **how)
        wholes.append(describe(video.path))
    return [_with_decoded_times(whole, folder) if whole.path.name == "h264.avi" else whole for whole in wholes]


def _with_decoded_times(whole: Whole, folder: Path) -> Whole:
    """The same where the packets have no pts: times are those that prep finds in the whole file."""
    dataset = folder / f"{whole.path.name} dataset"
    rows = prepare(whole.path, dataset, SourcePolicy())
    shutil.rmtree(dataset)
    assert rows.timeline is not None
    return replace(whole, numbers={pts: frame for frame, pts in enumerate(rows.timeline.pts.tolist())}, is_timed=False)


def describe(path: Path) -> Whole:
    with av.open(path) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        codec = container.streams.video[0].codec_context.name
    shown = _numbers_by_packet(path)
    numbers = {pts: shown[number] for number, packet in enumerate(packets) if (pts := packet.pts) is not None}
    return Whole(
        path=path,
        codec=codec,
        numbers=numbers,
        payloads={bytes(packet): shown[number] for number, packet in enumerate(packets)},
        is_timed=True,
        packets=[(packet.pos, packet.pos + packet.size) for packet in packets if packet.pos is not None],
    )


def _numbers_by_packet(path: Path) -> dict[int, int]:
    """Which number the frame of each packet shows; the packets are counted in decode order."""
    found: dict[int, int] = {}
    with av.open(path) as container:
        decoder = container.streams.video[0].codec_context
        decoder.thread_count = 1
        decoder.flags |= av.codec.context.Flags.copy_opaque
        for number, packet in enumerate(container.demux(video=0)):
            packet.opaque = number
            for frame in packet.decode():
                assert isinstance(frame.opaque, int)
                found[frame.opaque] = read_number(frame_to_rgb(frame))
    return found


# Ways to break a file: each takes its bytes, the whole it was made from, and a source of chance.

Break = Callable[[bytearray, Whole, random.Random], None]


def _span(rng: random.Random, length: int, longest: int) -> slice:
    start = rng.randrange(length)
    return slice(start, min(length, start + rng.randrange(1, longest)))


def _cut_end(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    del data[rng.randrange(len(data) // 20, len(data)) :]


def _cut_start(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    del data[: rng.randrange(1, len(data) * 9 // 10)]


def _cut_between_packets(data: bytearray, whole: Whole, rng: random.Random) -> None:
    del data[rng.choice(whole.packets)[1] :]


def _flip_bits(data: bytearray, _whole: Whole, rng: random.Random, most: int = 40) -> None:
    for _ in range(rng.randrange(1, most)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _zeros(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    hit = _span(rng, len(data), 2000)
    data[hit] = bytes(hit.stop - hit.start)


def _noise(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    hit = _span(rng, len(data), 2000)
    data[hit] = rng.randbytes(hit.stop - hit.start)


def _leave_out(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    del data[_span(rng, len(data), 3000)]


def _leave_out_packets(data: bytearray, whole: Whole, rng: random.Random) -> None:
    first = rng.randrange(len(whole.packets))
    last = min(len(whole.packets) - 1, first + rng.randrange(4))
    del data[whole.packets[first][0] : whole.packets[last][1]]


def _repeat(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    hit = _span(rng, len(data), 3000)
    data[hit.stop : hit.stop] = data[hit]


def _swap_bytes(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    size = rng.randrange(100, 2000)
    at = rng.randrange(max(1, len(data) - 2 * size))
    data[at : at + 2 * size] = data[at + size : at + 2 * size] + data[at : at + size]


def _swap_packets(data: bytearray, whole: Whole, rng: random.Random) -> None:
    (first, first_end), (second, second_end) = sorted(rng.sample(whole.packets, 2))
    data[first:second_end] = data[second:second_end] + data[first_end:second] + data[first:first_end]


def _noise_in_packet(data: bytearray, whole: Whole, rng: random.Random) -> None:
    start, end = rng.choice(whole.packets)
    hit = slice(rng.randrange(start, end), end)
    length = hit.stop - hit.start
    data[hit] = rng.choice([rng.randbytes(length), bytes(length)])


def _lying_header(data: bytearray, whole: Whole, rng: random.Random) -> None:
    # What is not in packets is headers, indexes and tables.
    places = [at for at in (rng.randrange(len(data)) for _ in range(400)) if not _in_packet(at, whole)]
    for at in places[: rng.randrange(1, 12)]:
        data[at] = rng.randrange(256)


def _zero_box(data: bytearray, whole: Whole, rng: random.Random) -> None:
    places = [at for at in (rng.randrange(len(data)) for _ in range(200)) if not _in_packet(at, whole)]
    at = (places or [0])[0]
    data[at : at + rng.choice([4, 8, 16, 64])] = bytes(len(data[at : at + rng.choice([4, 8, 16, 64])]))


def _in_packet(at: int, whole: Whole) -> bool:
    return any(start <= at < end for start, end in whole.packets)


BREAKS: Mapping[str, Break] = {
    "cut end": _cut_end,
    "cut between packets": _cut_between_packets,
    "cut start": _cut_start,
    "flip one bit": partial(_flip_bits, most=2),
    "flip bits": _flip_bits,
    "zeros": _zeros,
    "noise": _noise,
    "noise in a packet": _noise_in_packet,
    "leave out": _leave_out,
    "leave out packets": _leave_out_packets,
    "repeat": _repeat,
    "swap bytes": _swap_bytes,
    "swap packets": _swap_packets,
    "lying header": _lying_header,
    "zeroed box": _zero_box,
}


def break_file(whole: Whole, number: int) -> tuple[str, bytes]:
    """(kind, bytes) of the case of this number."""
    rng = random.Random(number)
    kind = rng.choice(list(BREAKS))
    data = bytearray(whole.path.read_bytes())
    BREAKS[kind](data, whole, rng)
    return kind, bytes(data)


def run_case(wholes: list[Whole], number: int, folder: Path) -> Outcome:
    """Break a source, prepare it, and check what came of it."""
    whole = wholes[number % len(wholes)]
    kind, data = break_file(whole, number)
    name = f"case {number}: {whole.path.name}, {kind}"
    work = folder / str(number)
    work.mkdir()
    broken = work / f"broken{whole.path.suffix}"
    broken.write_bytes(data)
    faulthandler.dump_traceback_later(_SECONDS_PER_CASE, exit=True)
    try:
        outcome = _prepare(name, kind, whole, broken, work, salvage=False)
        if outcome.verdict == "DamagedSourceError":
            salvaged = _prepare(name, kind, whole, broken, work, salvage=True)
            # What --salvage is offered for works with it, or says why not.
            if "--salvage" in outcome.reason and "--salvage" in salvaged.reason:
                raise AssertionError(f"{name}: {outcome.reason}; then {salvaged.reason}")
            salvaged.verdict = f"salvage: {salvaged.verdict}"
            outcome = salvaged
        return outcome
    finally:
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(work)


def _prepare(name: str, kind: str, whole: Whole, broken: Path, work: Path, *, salvage: bool) -> Outcome:
    dataset = work / f"dataset {salvage}"
    try:
        rows = prepare(broken, dataset, SourcePolicy(salvage))
    except SourceError as error:
        if str(broken) not in error.message:
            raise AssertionError(f"{name}: {error} does not name the source") from error
        return Outcome(name, kind, type(error).__name__, error.message)
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    finally:
        left = [path.name for path in dataset.rglob("*") if path.is_file() and path.parent.name == ".tmp"]
        assert not left, f"{name}: left {left}"
    return check_rows(name, kind, whole, broken, rows, next((dataset / "shards").iterdir()).read_bytes())


def prepare(source: Path, dataset: Path, policy: SourcePolicy) -> Manifest:
    """Prepare one source into a dataset with one shard."""
    profile = Profile(preset="ultrafast", gop_frames=4)
    create(dataset, profile.to_json())
    shards = ShardWriter(dataset, "unit", 1 << 30)
    identity = Identity("x", str(source), str(source), "{}", 0)
    try:
        rows = prepare_video(str(source), identity, Options(profile, policy), find_ffmpeg().path, shards)
        shards.commit()
    finally:
        shards.close()
    return rows


def check_rows(name: str, kind: str, whole: Whole, broken: Path, rows: Manifest, shard: bytes) -> Outcome:
    """AssertionError where a frame shows another number than its place in the timeline says."""
    assert rows.timeline is not None
    pts = rows.timeline.pts.tolist()
    pictures = _decode(rows, shard)
    assert len(pictures) == len(pts), f"{name}: {len(pictures)} pictures, {len(pts)} rows of the timeline"
    outcome = Outcome(name, kind, "dataset", frames=len(pts), salvaged=rows.changes(0).num_salvaged)
    said, suspect = _what_the_file_says(whole, broken)
    # Without its head a file may open as something else, such as a raw stream, with times of its own.
    numbers = whole.numbers if _format_of(broken) == _format_of(whole.path) else {}
    in_time = [said[time_] for time_ in sorted(said)]
    has_wrong_times = in_time != sorted(in_time)
    if has_wrong_times:
        # The times of the file contradict its frames, so that no time is right. Their order is that of the stream.
        numbers, said = {}, {}
    latest = 0
    for frame, (time_, picture) in enumerate(zip(pts, pictures, strict=True)):
        try:
            number = read_number(picture)
        except AssertionError:
            # Noise that decodes; every decoder shows it.
            outcome.unreadable += 1
            continue
        if has_wrong_times and number < latest:
            raise AssertionError(f"{name}: frame {frame} shows {number} after {latest}")
        latest = number
        right = {each for each in (numbers.get(time_), said.get(time_)) if each is not None}
        near = right and min(abs(number - each) for each in right) <= GOP
        if time_ in suspect and right and (near or kind == "swap packets"):
            # Noise in a packet may decode without a complaint, to the picture it leans on; what was swapped may be
            # a whole keyframe from anywhere.
            outcome.stale += number not in right
            continue
        if right and number not in right:
            raise AssertionError(f"{name}: frame {frame} of pts {time_} shows {number}, not {right}")
    _check_marks(name, whole, rows, outcome)
    return outcome


def _check_marks(name: str, whole: Whole, rows: Manifest, outcome: Outcome) -> None:
    """Frames of a salvaged video that come late for their source frame are marked."""
    assert rows.timeline is not None
    changes, pts = rows.changes(0), rows.timeline.pts
    if not changes.salvaged or not set(pts.tolist()) <= set(whole.numbers):
        return
    video = rows.video(0)
    interval = float(np.median(np.diff(sorted(whole.numbers))))
    ticks = pts[0] + np.arange(len(pts)) / float(video.fps * video.source_timebase)
    marked = np.zeros(len(pts), dtype=bool)
    for first, stop in changes.salvaged:
        marked[first:stop] = True
    stale = (ticks - pts > 1.2 * interval) & ~marked
    if stale.any():
        raise AssertionError(f"{name}: frames {np.flatnonzero(stale).tolist()} are stale and not marked")
    outcome.salvaged = int(marked.sum())


def _what_the_file_says(whole: Whole, broken: Path) -> tuple[dict[int, int], set[int]]:
    """By pts, the number of the frame whose packet lies there unharmed; and the pts of packets in whose GOP one is
    harmed, or whose neighbours are others than they were, and of packets that are no longer there."""
    said: dict[int, int] = {}
    suspect: set[int] = set()
    there: set[int] = set()
    harmed = True
    try:
        with av.open(broken, metadata_errors="replace") as container:
            for place, packet in enumerate(packets_of(container, video_stream(str(broken), container))):
                number = whole.payloads.get(bytes(packet))
                if packet.is_keyframe:
                    harmed = False
                harmed = harmed or number is None
                if not whole.is_timed:
                    # Frames are put out two or three packets later, and one unit later for each.
                    suspect.update(range(place - 2, place + 6) if harmed else ())
                elif packet.pts is not None:
                    there.add(packet.pts)
                    if number is not None:
                        said[packet.pts] = number
                    if harmed:
                        suspect.add(packet.pts)
    except (av.error.FFmpegError, UnicodeDecodeError):
        pass
    # Without a packet that others refer to, decoders give its time to another frame.
    return said, suspect | (set(whole.numbers) - there)


def _format_of(path: Path) -> str:
    with av.open(path, metadata_errors="replace") as container:
        return container.format.name


def _decode(rows: Manifest, shard: bytes) -> list[Any]:
    starts = [*rows.segments.offset.tolist(), len(shard)]
    pictures: list[Any] = []
    for start, stop in zip(starts, starts[1:], strict=False):
        with av.open(BytesIO(shard[start:stop]), "r") as container:
            container.streams.video[0].codec_context.thread_count = 1
            pictures.extend(frame_to_rgb(frame) for frame in container.decode(video=0))
    return pictures


def main() -> None:
    """Run cases until told to stop; print what failed and what became of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after this time")
    parser.add_argument("--verbose", action="store_true", help="print every case before it runs")
    arguments = parser.parse_args()
    verdicts: Counter[tuple[str, str]] = Counter()
    failed: list[str] = []
    seen: Counter[str] = Counter()
    start = time.monotonic()
    done = 0
    with tempfile.TemporaryDirectory() as name, suppress(KeyboardInterrupt):
        folder = Path(name)
        wholes = make_sources(folder)
        for number in range(arguments.first, arguments.first + arguments.cases):
            if time.monotonic() - start > arguments.seconds:
                break
            if arguments.verbose:
                print(f"case {number}", flush=True)
            try:
                outcome = run_case(wholes, number, folder)
            except AssertionError as error:
                failed.append(str(error))
                print(f"FAILED {error}", flush=True)
            else:
                verdicts[wholes[number % len(wholes)].path.name, outcome.verdict] += 1
                for what in ("frames", "salvaged", "unreadable", "stale"):
                    seen[what] += getattr(outcome, what)
                if arguments.verbose:
                    print(outcome, flush=True)
            done += 1
    for (source, verdict), count in sorted(verdicts.items()):
        print(f"{count:6} {source:16} {verdict}")
    totals = Counter(verdict for (_, verdict), count in verdicts.items() for _ in range(count))
    print(f"{done} cases in {time.monotonic() - start:.0f} s: {dict(totals)}; {len(failed)} failed; {dict(seen)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
