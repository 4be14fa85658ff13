"""Breaks real files in many ways and holds what prep makes of them against what was burnt into their frames.

`run_case(sources, number)` breaks one file and prepares it, first as it is and, where that is refused as damaged, with
--salvage. It ends as a dataset whose frames show what its timeline says, or with a SourceError; anything else is an
AssertionError that names the case. The same number is the same case on every machine with the same encoders.

    python tests/shared/fuzzing.py --first 0 --cases 5000
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np

from fuzz_files import GOP, Whole, break_file, make_sources, prepare
from shortgop.errors import SourceError
from shortgop.manifests.tables import Manifest
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.opening import packets_of, video_stream
from synthetic import frame_to_rgb, read_number

# A case that takes longer than this hangs.
_SECONDS_PER_CASE = 120


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


def run_case(wholes: list[Whole], number: int, folder: Path) -> Outcome:
    """Break a source, prepare it, and check what came of it."""
    whole = wholes[number % len(wholes)]
    kind, data = break_file(whole, number)
    name = f"case {number}: {whole.path.name}, {kind}"
    work = folder / str(number)
    work.mkdir()
    broken = work / f"broken{whole.path.suffix}"
    broken.write_bytes(data)
    # The traceback that ends a case that hangs does not say which case it is.
    hangs = threading.Timer(_SECONDS_PER_CASE - 1, print, [f"FAILED {name}: it hangs"], {"flush": True})
    hangs.start()
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
        hangs.cancel()
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


def check_rows(name: str, kind: str, whole: Whole, broken: Path, rows: Manifest, shard: bytes) -> Outcome:
    """AssertionError where a frame shows another number than its place in the timeline says."""
    assert rows.timeline is not None
    pts = rows.timeline.pts.tolist()
    pictures = _decode(rows, shard)
    assert len(pictures) == len(pts), f"{name}: {len(pictures)} pictures, {len(pts)} rows of the timeline"
    outcome = Outcome(name, kind, "dataset", frames=len(pts), salvaged=rows.changes(0).num_salvaged)
    said, suspect, has_two_at_once = _what_the_file_says(whole, broken)
    # Without its head a file may open as something else, such as a raw stream, with times of its own.
    numbers = whole.numbers if _format_of(broken) == _format_of(whole.path) else {}
    in_time = [said[time_] for time_ in sorted(said)]
    has_wrong_times = has_two_at_once or in_time != sorted(in_time)
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
        # Where keyframes of one size were swapped, so is the stream.
        if has_wrong_times and number < latest and kind != "swap packets":
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


def _what_the_file_says(whole: Whole, broken: Path) -> tuple[dict[int, int], set[int], bool]:
    """By pts, the number of the frame whose packet lies there unharmed; and the pts of packets in whose GOP one is
    harmed, or whose neighbours are others than they were, and of packets that are no longer there; and whether two
    have one pts."""
    said: dict[int, int] = {}
    suspect: set[int] = set()
    there: set[int] = set()
    has_two_at_once = False
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
                        has_two_at_once = has_two_at_once or said.get(packet.pts, number) != number
                        said[packet.pts] = number
                    if harmed:
                        suspect.add(packet.pts)
    except (av.error.FFmpegError, UnicodeDecodeError):
        pass
    # Without a packet that others refer to, decoders give its time to another frame.
    return said, suspect | (set(whole.numbers) - there), has_two_at_once


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
