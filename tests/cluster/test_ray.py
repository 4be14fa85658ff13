"""Units on Ray: a cluster of two nodes gives the dataset that a plain loop gives, whatever dies. All jobs run on the
same cluster, which loses a node in the end: to start one takes longer than any of the jobs."""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import _raylet
from typer.testing import CliRunner

import shortgop
from bare_ray import bare_nodes
from datasets import make_dataset, rows_of
from long_sources import FRAMES, FRAMES_OF_BOTH, assert_undisturbed, make_sources, run_in_sections
from own_units import make_own_units
from ray_heads import cluster_of
from shortgop.cli import app
from shortgop.errors import TooManyFailuresError
from shortgop.jobs.cluster import ray_runner
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.progress import status_file
from shortgop.jobs.progress.job_status import JobStatus, read_status
from shortgop.jobs.progress.status_file import status_kept
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.sources.failing import parse_max_failures
from shortgop.jobs.working import second_attempts
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.prep.profile import Profile, parse_size
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.long

# A look at a long source answers with its grid of frames.
_MOST_ANSWER_BYTES = 20_000
# DRAIN_NODE_REASON_PREEMPTION of ray/core/generated/autoscaler_pb2.py.
_PREEMPTION = 2
_KILL_THE_WORKER = f"kill -{int(signal.SIGKILL)} $PPID"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_own_units(tmp_path_factory.mktemp("sources") / "videos", 6, frames=120)
    (folder / "broken.mp4").write_text("not a video")
    return folder


@pytest.fixture(scope="module")
def plain(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a plain loop makes of the sources."""
    dataset = tmp_path_factory.mktemp("plain") / "dataset"
    make_dataset([sources], dataset)
    return dataset


@dataclass(frozen=True)
class StandIn:
    """A program in the place of ffmpeg, here and on all nodes: it first does what the script says, which may look at
    the arguments. Without a script it is ffmpeg."""

    script: Path

    @contextlib.contextmanager
    def does(self, script: str) -> Iterator[None]:
        self.script.write_text(script)
        try:
            yield
        finally:
            self.script.unlink()


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    folder = tmp_path_factory.mktemp("stand_in")
    program, script = folder / "ffmpeg", folder / "script"
    program.write_text(f'#!/bin/sh\n[ -e {script} ] && . {script}\nexec "{find_ffmpeg().path}" "$@"\n')
    program.chmod(0o755)
    find_ffmpeg.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT_VARIABLE, str(program))
        yield StandIn(script)
    find_ffmpeg.cache_clear()


@pytest.fixture(scope="module")
def cluster(stand_in: StandIn) -> Iterator[Any]:
    with cluster_of({"num_cpus": 1}, {"num_cpus": 1}) as (cluster, _):
        yield cluster


def test_what_each_node_of_a_cluster_does_is_seen_during_the_job_and_after_it(
    sources: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By anyone who knows where the dataset is, and nothing else."""
    # The units of this job take a second or two.
    monkeypatch.setattr(status_file, "status_kept", partial(status_kept, every_seconds=0.1))
    few = [sources / name for name in ("0.mp4", "1.mp4", "2.mp4", "broken.mp4")]
    dataset = DiskStorage(tmp_path / "dataset")
    seen: list[JobStatus] = []

    def at_work(found: JobStatus) -> int:
        return sum(frames > 0 for frames in found.nodes.values())

    def watch(progress: Progress) -> None:
        """Hold the driver until it has written what it knows now, as long as only one node has encoded anything."""
        begun = time.time()
        if 0 < progress.frames_done < progress.frames_planned and not (seen and at_work(seen[-1]) == 2):
            while (found := read_status(dataset)).written < begun:
                time.sleep(0.02)
            seen.append(found)

    slow = Profile(size=parse_size("480"), upscale=True)
    prepare(list(map(str, few)), dataset, slow, where=Where(address=cluster.address), on_update=watch)
    during = seen[-1]
    assert at_work(during) == 2
    assert during.state == "running"
    assert min(during.node_rates.values()) > 0
    assert {task.node for task in during.running} <= during.nodes.keys()
    assert 0 < during.frames_done < during.frames_planned == 360
    assert during.encoding_seconds is not None
    assert 0 < during.encoding_seconds < during.written - during.started, "joining the cluster does not count"
    after = read_status(dataset)
    assert (after.state, after.frames_done, sum(after.nodes.values())) == ("finished", 360, 360)
    assert after.nodes.keys() == during.nodes.keys()
    assert after.bytes_in == sum(file.stat().st_size for file in few)
    text = CliRunner().invoke(app, ["status", str(tmp_path / "dataset")]).output
    assert text.count("\nnode ") == 2
    assert text.count("\nslowest: ") == 3
    work = after.node_work.values()
    assert (sum(each.units for each in work), sum(each.sources_failed for each in work)) == (4, 1)
    assert sum(each.bytes_in for each in work) == after.bytes_in
    assert sum(each.bytes_out for each in work) == after.bytes_out
    assert after.node_work.keys() == after.nodes.keys()
    assert len({name for name, each in after.node_work.items() if each.bytes_out}) == 2


def created_bytes(cluster: Any) -> int:
    """How many bytes were ever put into the object stores of the nodes that are alive, which Ray counts itself."""
    from ray._private.internal_api import get_memory_info_reply, get_state_from_address

    reply: Any = get_memory_info_reply(get_state_from_address(cluster.address))  # type: ignore[no-untyped-call]
    created: int = reply.store_stats.cumulative_created_bytes
    return created


@pytest.fixture(scope="module")
def long_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sources(tmp_path_factory.mktemp("long_sources"))


def test_sections_of_a_long_source_make_the_dataset_of_a_plain_loop(
    long_sources: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no video bytes pass through Ray."""
    dataset = tmp_path / "dataset"
    answers: list[bytes] = []

    def get(reference: Any, plainly: Any = ray.get) -> Any:
        answer = plainly(reference)
        answers.append(pickle.dumps(answer))
        return answer

    monkeypatch.setattr(ray, "get", get)
    before = created_bytes(cluster)
    report = run_in_sections(long_sources, dataset, Where(address=cluster.address))
    source_bytes = sum(file.stat().st_size for file in long_sources.iterdir())
    assert created_bytes(cluster) - before < source_bytes / 100
    # The answers of tasks, of which Ray keeps none in an object store that has less than 100 kB.
    assert len(answers) >= 5
    assert max(map(len, answers)) < _MOST_ANSWER_BYTES
    assert (report.videos_added, report.frames_added, report.failures) == (2, FRAMES_OF_BOTH, ())
    run_in_sections(long_sources, tmp_path / "plain")
    assert_undisturbed(dataset, tmp_path / "plain")
    video = shortgop.open(dataset)["long.mp4"]
    looked_at = range(0, FRAMES, 7)
    assert [read_number(frame) for frame in video.get_frames_at(looked_at).data] == list(looked_at)
    storage = DiskStorage(dataset)
    assert list(verify(storage, open_current(storage)[1])) == []


# `test_section_plans.py` has what becomes of its source.
@only_in_a_sweep
def test_a_section_that_kills_its_workers_fails_its_source_alone(
    long_sources: Path, cluster: Any, stand_in: StandIn, tmp_path: Path
) -> None:
    with stand_in.does(f'case "$*" in *"-ss "*) {_KILL_THE_WORKER};; esac'):
        report = run_in_sections(long_sources, tmp_path / "dataset", Where(address=cluster.address))
    assert (report.videos_added, [failure.id for failure in report.failures]) == (1, ["long.mp4"])
    assert "its worker died 4 times" in report.failures[0].reason
    assert [video.id for video in shortgop.open(tmp_path / "dataset")] == ["short.mp4"]


def test_a_source_that_kills_its_workers_is_set_aside_until_it_is_to_be_tried_again(
    sources: Path, cluster: Any, stand_in: StandIn, tmp_path: Path
) -> None:
    """As running out of memory would. Its unit is split, so that the other sources of the unit are there."""
    corpus, dataset = tmp_path / "corpus", DiskStorage(tmp_path / "dataset")
    corpus.mkdir()
    for name in ("0.mp4", "1.mp4", "broken.mp4"):
        (corpus / name).symlink_to(sources / name)
    for number in range(3):
        make_video(corpus / f"small{number}.mp4", pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30))

    def run(where: Where, *, retry_failed: bool = False) -> Report:
        return prepare([str(corpus)], dataset, Profile(), where=where, retry_failed=retry_failed)

    with stand_in.does(f'case "$*" in *small1.mp4*) {_KILL_THE_WORKER};; esac'):
        report = run(Where(address=cluster.address))
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert (report.videos_added, set(reasons)) == (4, {"small1.mp4", "broken.mp4"})
    assert "its worker died 4 times; most often memory is short: take more, or let fewer" in reasons["small1.mp4"]
    assert [failure.id for failure in shortgop.open(tmp_path / "dataset").failures] == ["broken.mp4", "small1.mp4"]
    found = read_status(dataset)
    assert (found.sources_done, found.sources_total, found.sources_failed) == (6, 6, 2)
    assert found.frames_done == found.frames_planned == 2 * 120 + 2 * 20
    assert found.running == ()
    # It would work now, but only the other failure is tried.
    report = run(Where("inline"))
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert (report.videos_added, report.already_there, set(reasons)) == (0, 4, {"small1.mp4", "broken.mp4"})
    assert reasons["small1.mp4"].endswith("it was set aside; --retry-failed tries it again")
    report = run(Where("inline"), retry_failed=True)
    assert (report.videos_added, [failure.id for failure in report.failures]) == (1, ["broken.mp4"])
    assert [failure.id for failure in shortgop.open(tmp_path / "dataset").failures] == ["broken.mp4"]


@only_in_a_sweep
def test_a_second_attempt_runs_on_a_machine_that_has_not_attempted_the_step(
    sources: Path, plain: Path, cluster: Any, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ffmpeg on one of the sources stands still for ever. The job ends, with the dataset of a plain loop."""
    monkeypatch.setattr(second_attempts, "_LEAST_SECONDS", 1.0)
    asked: list[frozenset[str]] = []
    selector = ray_runner.elsewhere

    def noted(avoided: frozenset[str]) -> dict[str, Any]:
        asked.append(avoided)
        return selector(avoided)

    monkeypatch.setattr(ray_runner, "elsewhere", noted)
    stands_still = f"mkdir {tmp_path}/stood 2> /dev/null && while kill -0 $PPID; do sleep 0.2; done"
    with stand_in.does(f'case "$*" in *5.mp4*) {stands_still};; esac'):
        where = Where(address=cluster.address)
        report = prepare([str(sources)], DiskStorage(tmp_path / "dataset"), Profile(), where=where)
    assert (report.videos_added, [failure.id for failure in report.failures]) == (6, ["broken.mp4"])
    assert (tmp_path / "stood").exists()
    assert rows_of(tmp_path / "dataset") == rows_of(plain)
    # On a busy machine another step may be slow, too.
    avoided, *more = filter(None, asked)
    assert {len(each) for each in (avoided, *more)} == {1}
    assert runs_on(cluster, avoided) == {node.node_id for node in cluster.list_all_nodes()} - avoided


def runs_on(cluster: Any, avoided: frozenset[str]) -> set[str]:
    """The ids of the machines that run tasks which avoid some machines."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False)
    try:
        task: Any = ray.remote(num_cpus=1)(lambda: ray.get_runtime_context().get_node_id())
        return set(ray.get([task.options(**ray_runner.elsewhere(avoided)).remote() for _ in range(6)]))
    finally:
        ray.shutdown()


def test_a_job_that_is_stopped_takes_its_unit_along(sources: Path, cluster: Any, tmp_path: Path) -> None:
    """The cluster goes on, so the unit has to be told: ffmpeg is gone before another job may use the dataset."""
    stopped: list[float] = []

    def stop(progress: Progress) -> None:
        if 0 < progress.frames_done < progress.frames_planned and not stopped:
            stopped.append(time.monotonic())
            raise KeyboardInterrupt

    source, where = sources / "0.mp4", Where(address=cluster.address)
    # Some ten seconds of work, which Ray does not wait for.
    slow = Profile(size=parse_size("1080"), upscale=True, preset="veryslow")
    with pytest.raises(KeyboardInterrupt):
        prepare([str(source)], DiskStorage(tmp_path / "dataset"), slow, where=where, on_update=stop)
    assert time.monotonic() - stopped[0] < 30
    assert running_on(source) == []
    assert not (tmp_path / "dataset" / ".tmp").exists()
    assert finished_units(DiskStorage(tmp_path / "dataset")) == set()


def test_a_job_with_too_many_failures_ends_with_all_that_it_runs(
    sources: Path, cluster: Any, stand_in: StandIn, tmp_path: Path
) -> None:
    """One source fails while ffmpeg encodes another one, which would take some ten seconds more."""
    begun = tmp_path / "begun"
    script = (
        f'case "$*" in *{sources}/0.mp4*) touch {begun};; '
        f"*{sources}/1.mp4*) while [ ! -e {begun} ]; do sleep 0.1; done; exit 1;; esac"
    )
    given, where = [str(sources / name) for name in ("0.mp4", "1.mp4")], Where(address=cluster.address)
    slow = Profile(size=parse_size("1080"), upscale=True, preset="veryslow")
    dataset, limit = DiskStorage(tmp_path / "dataset"), parse_max_failures("5%")
    with stand_in.does(script), pytest.raises(TooManyFailuresError, match="1 of 2 sources failed, more than"):
        prepare(given, dataset, slow, where=where, max_failures=limit)
    assert begun.exists()
    assert [running_on(sources / name) for name in ("0.mp4", "1.mp4")] == [[], []]
    assert not (tmp_path / "dataset" / ".tmp").exists()
    assert (len(finished_units(dataset)), read_status(dataset).sources_failed) == (1, 1)


def running_on(source: Path) -> list[str]:
    """The command lines of all processes that name this file."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().decode(errors="replace").split("\0")
            found += [" ".join(words)] if any(str(source) in word for word in words) else []
    return found


# `test_lost_tasks.py` loses one in the suite, `test_cluster_chaos.py` again and again.
@only_in_a_sweep
@pytest.mark.parametrize("how", ["drained", "killed"])
def test_a_cluster_that_loses_a_node(sources: Path, plain: Path, cluster: Any, tmp_path: Path, how: str) -> None:
    """Who takes a spot machine away may have it drained: it gets nothing more, and ends a moment later."""
    dataset = tmp_path / "dataset"
    lost = threading.Event()
    with bare_nodes():
        node = cluster.add_node(num_cpus=1, include_dashboard=False, no_monitor=True, include_log_monitor=False)
    seen: list[tuple[int, int]] = []

    def watch(progress: Progress) -> None:
        seen.append((progress.frames_done, progress.frames_planned))
        if finished_units(DiskStorage(dataset)) and not lost.is_set():
            lost.set()
            if how == "killed":
                cluster.remove_node(node, allow_graceful=False)
            else:
                ray_itself: Any = _raylet
                soon_ms = int(1000 * (time.time() + 0.1))
                drain = ray_itself.GcsClient(cluster.address).drain_node
                assert drain(node.node_id, _PREEMPTION, "it is taken away", soon_ms) == (True, "")

    where = Where(address=cluster.address)
    report = prepare([str(sources)], DiskStorage(dataset), Profile(), where=where, on_update=watch)

    assert lost.is_set()
    assert "raylet" not in dict(node.live_processes())
    assert (report.videos_added, report.frames_added) == (6, 720)
    assert [failure.id for failure in report.failures] == ["broken.mp4"]
    assert seen[-1] == (720, 720)
    assert rows_of(dataset) == rows_of(plain)


def test_an_address_where_no_cluster_is_is_refused(sources: Path, tmp_path: Path) -> None:
    where = Where(address="127.0.0.1:1")
    with pytest.raises(shortgop.ToolError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        prepare([str(sources)], DiskStorage(tmp_path / "dataset"), Profile(), where=where)
    assert not (tmp_path / "dataset").exists()
