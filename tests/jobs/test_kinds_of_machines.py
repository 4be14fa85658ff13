"""A cluster of three kinds of machines: one without a GPU, one whose GPU decodes but has no encoder, as an H100, and
one whose GPU does both, as an L4. Each gets the steps that it can do, and the GPUs what they can do besides.

The GPUs are `cuda_ffmpeg.py`: each machine has a program of its own, whose log says what ran there.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import shortgop
from cuda_ffmpeg import NO_DRIVER, NO_ENGINE, Installed, install
from datasets import current_manifest
from long_sources import assert_undisturbed, make_sources, run_in_sections
from padded_sources import PADDED_FRAMES, make_padded
from ray_heads import cluster_of, user_environment
from shortgop.jobs.units_of_work.where import Where
from shortgop.jobs.working import second_attempts
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from sweep import only_in_a_sweep
from synthetic import read_number

pytestmark = pytest.mark.long

_VIDEOS = 14
_SESSION_SECONDS = 1.5
_KINDS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "no GPU": ({"num_cpus": 1}, {"nvdec": NO_DRIVER, "nvenc": NO_DRIVER}),
    "H100": ({"num_cpus": 2, "num_gpus": 1}, {"nvenc": NO_ENGINE, "session_seconds": _SESSION_SECONDS}),
    "L4": ({"num_cpus": 2, "num_gpus": 1}, {"session_seconds": _SESSION_SECONDS}),
}

Runs = dict[str, list[dict[str, Any]]]
"""What machines were asked to encode, by kind."""


@dataclass(frozen=True)
class Kinds:
    """A cluster with a machine of each kind, and their programs."""

    address: str
    programs: Mapping[str, Installed]

    @contextlib.contextmanager
    def noted(self) -> Iterator[Runs]:
        """What the machines are asked to encode in the block, when it has ended."""
        for program in self.programs.values():
            program.log.write_text("")
        runs: Runs = {}
        yield runs
        runs |= {kind: program.runs() for kind, program in self.programs.items()}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinds]:
    """Start the machines. The driver, which is this process, has the program of the first one."""
    folder = tmp_path_factory.mktemp("machines")
    programs = {kind: install(folder / kind.replace(" ", "-"), **has) for kind, (_, has) in _KINDS.items()}
    machines = [
        {**resources, "env_vars": {ENVIRONMENT_VARIABLE: programs[kind].path}}
        for kind, (resources, _) in _KINDS.items()
    ]
    with pytest.MonkeyPatch.context() as patch, cluster_of(*machines) as (cluster, _):
        patch.setenv(ENVIRONMENT_VARIABLE, next(iter(programs.values())).path)
        find_ffmpeg.cache_clear()
        yield Kinds(cluster.address, programs)
    find_ffmpeg.cache_clear()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_padded(tmp_path_factory.mktemp("sources"), _VIDEOS)


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a step may take so long that it would be attempted twice."""
    monkeypatch.setattr(second_attempts, "_LEAST_SECONDS", 300.0)


def prepared(sources: Path, dataset: Path, kinds: Kinds, videos: int = _VIDEOS, **options: Any) -> Runs:
    """Prepare so many of the sources on the machines. Every frame shows its number."""
    given = sorted(sources.iterdir())[:videos]
    with kinds.noted() as runs:
        report = shortgop.prepare(given, dataset, address=kinds.address, size=160, **options)
    assert (report.videos_added, report.failures) == (videos, ())
    for number, video in enumerate(shortgop.open(dataset)):
        assert [read_number(video[0]), read_number(video[-1])] == [100 * number, 100 * number + PADDED_FRAMES - 1]
    return runs


def encoders(runs: list[dict[str, Any]]) -> set[tuple[bool, str]]:
    """The encoders that were asked for, each with whether the GPU was used."""
    return {(run["on_gpu"], each) for run in runs for each in run["argv"] if each in ("libx264", "h264_nvenc")}


def test_every_kind_does_what_it_does_best(sources: Path, kinds: Kinds, tmp_path: Path) -> None:
    runs = prepared(sources, tmp_path / "dataset", kinds, streams_per_gpu=1)
    assert encoders(runs["no GPU"]) == {(False, "libx264")}
    # Besides, their cores may do what any core does.
    assert encoders(runs["H100"]) - {(False, "libx264")} == {(True, "libx264")}
    assert encoders(runs["L4"]) - {(False, "libx264")} == {(True, "h264_nvenc")}
    assert {run["visible"] for run in [*runs["H100"], *runs["L4"]] if run["on_gpu"]} == {"0"}
    assert sum(map(len, runs.values())) == _VIDEOS, "nothing is encoded twice"
    manifest = current_manifest(tmp_path / "dataset")
    used = {(each["decoding"], each["encoder"]) for each in map(manifest.pipeline, manifest.videos.config.tolist())}
    assert {("software", "libx264"), ("nvdec", "libx264"), ("nvdec", "h264_nvenc")} <= used


@only_in_a_sweep
def test_an_encoder_that_one_kind_has_runs_only_there(sources: Path, kinds: Kinds, tmp_path: Path) -> None:
    runs = prepared(sources, tmp_path / "dataset", kinds, videos=6, encoder="h264_nvenc")
    assert (runs["no GPU"], runs["H100"]) == ([], [])
    assert encoders(runs["L4"]) == {(True, "h264_nvenc")}
    assert len(runs["L4"]) == 6


# `test_gpu_slots.py` has that a job with it asks for none.
@only_in_a_sweep
def test_an_encoder_for_the_cpu_leaves_all_gpus_alone(sources: Path, kinds: Kinds, tmp_path: Path) -> None:
    runs = prepared(sources, tmp_path / "dataset", kinds, encoder="libx264")
    assert [encoders(each) for each in runs.values()] == [{(False, "libx264")}] * 3


def test_gpus_decode_the_sections_of_a_film_which_is_the_same_as_without_them(kinds: Kinds, tmp_path: Path) -> None:
    source = make_sources(tmp_path) / "long.mp4"
    with kinds.noted() as runs:
        report = run_in_sections(source, tmp_path / "dataset", Where(address=kinds.address, streams_per_gpu=1))
    assert (report.videos_added, report.failures) == (1, ())
    on_gpus = [run for run in [*runs["H100"], *runs["L4"]] if run["on_gpu"]]
    assert on_gpus
    assert encoders(on_gpus) == {(True, "libx264")}
    run_in_sections(source, tmp_path / "plain")
    assert_undisturbed(tmp_path / "dataset", tmp_path / "plain")


_PLACES = """
import json, math, sys, time
import ray
from collections import Counter
from ray_heads import cluster_of
from shortgop.jobs.units_of_work.gpu_slots import free_places
from shortgop.jobs.cluster.ray_connection import connected

def run(seconds):
    time.sleep(seconds)

with cluster_of({"num_cpus": 4, "num_gpus": 1}) as (cluster, _), connected(cluster.address, None, 2) as ask_slots:
    slots, task, running, ended = ask_slots(), ray.remote(max_retries=0)(run), {}, Counter()
    end = math.inf
    while time.monotonic() < end:
        while places := free_places(slots, Counter(running.values())):
            share, seconds = (slots.gpu_share, 0.3) if places[0] == "gpu" else (0, 1.0)
            running[task.options(num_cpus=1, num_gpus=share).remote(seconds)] = places[0]
        for done in ray.wait(list(running), timeout=0.5)[0]:
            place = running.pop(done)
            ended[place] += 1
        # All workers have started then.
        if end == math.inf and ended["gpu"] >= 10 and ended["cpu"] >= 4:
            ended.clear()
            end = time.monotonic() + float(sys.argv[1])
print(json.dumps([slots.on_gpus, ended["gpu"], ended["cpu"]]))
"""


@only_in_a_sweep
def test_units_for_the_cpu_do_not_take_the_cores_of_those_that_use_a_gpu(tmp_path: Path) -> None:
    """Ray gives a core that becomes free to any task that waits for one. Here a machine has four cores and two streams;
    units take 0.3 s with the GPU, and 1 s without. They only wait, so other load of this machine hardly matters."""
    (tmp_path / "home").mkdir()
    environment = user_environment(tmp_path / "home", PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-c", _PLACES, "6"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    on_gpus, with_gpu, without = json.loads(done.stdout.splitlines()[-1])
    assert on_gpus == 2
    # 40 and 12 would be the most. Where twice as many wait for cores, Ray gives those to either kind, by chance: in one
    # of four runs a third of this with the GPU.
    assert with_gpu > 25
    assert without > 6
