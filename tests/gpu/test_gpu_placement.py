"""Units on a Ray cluster whose node says that it has a GPU: how many use it at a time, and what happens at one that
refuses.

The GPU is `cuda_ffmpeg.py`: a program that does on the CPU what ffmpeg is asked to do on a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import shortgop
from cuda_ffmpeg import NO_ENGINE, NO_SESSION, install
from datasets import current_manifest
from padded_sources import PADDED_FRAMES, make_padded
from ray_heads import cluster_of, user_environment
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from sweep import only_in_a_sweep, sample
from synthetic import read_number

pytestmark = pytest.mark.long

_VIDEOS = 7


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_padded(tmp_path_factory.mktemp("sources"), _VIDEOS)


def most_at_a_time(runs: Sequence[dict[str, Any]]) -> int:
    events = sorted([(run["from"], 1) for run in runs] + [(run["to"], -1) for run in runs])
    at_a_time = most = 0
    for _, change in events:
        at_a_time += change
        most = max(most, at_a_time)
    return most


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return where the ffmpeg has to be installed that this process and all nodes take."""
    folder = tmp_path_factory.mktemp("bin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT_VARIABLE, install(folder).path)
        find_ffmpeg.cache_clear()
        yield folder
    find_ffmpeg.cache_clear()


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Any]:
    """Start a machine with the program of `folder` in its environment, as this process has it."""
    with cluster_of({"num_cpus": 4, "num_gpus": 1}) as (cluster, _):
        yield cluster


@pytest.mark.parametrize(
    ("has", "streams"),
    sample([({"nvenc": NO_ENGINE}, 2)], more=[({"refuse": NO_SESSION, "refusals": 4}, 1)]),
    ids=lambda value: "" if isinstance(value, int) else next(iter(value)),
)
def test_a_gpu_has_as_many_streams_as_it_was_given_and_all_else_runs_on_the_cpu(
    has: dict[str, Any], streams: int, sources: Path, folder: Path, cluster: Any, tmp_path: Path
) -> None:
    gpu = install(folder, session_seconds=1.0, **has)
    gpu.log.write_text("")
    find_ffmpeg.cache_clear()
    report = shortgop.prepare(
        str(sources), tmp_path / "dataset", address=cluster.address, streams_per_gpu=streams, size=160
    )
    assert report.failures == ()
    for number, video in enumerate(shortgop.open(tmp_path / "dataset")):
        assert [read_number(video[0]), read_number(video[-1])] == [100 * number, 100 * number + PADDED_FRAMES - 1]
    runs = gpu.runs()
    with_gpu = [run for run in runs if run["on_gpu"]]
    assert 0 < most_at_a_time(with_gpu) <= streams
    assert {run["visible"] for run in with_gpu} == {"0"}
    # Most of the units found the GPU taken and did not wait for it.
    manifest = current_manifest(tmp_path / "dataset")
    decoding = [manifest.pipeline(int(config))["decoding"] for config in manifest.videos.config]
    assert set(decoding) == {"nvdec", "software"}


_ON_TWO_MACHINES = """
import json, sys
import shortgop
from ray_heads import cluster_of

sources, out, machines = sys.argv[1:]
with cluster_of(*json.loads(machines)) as (cluster, _):
    report = shortgop.prepare(sources, out, address=cluster.address, size=160, encoder="h264_nvenc")
print(json.dumps([report.videos_added, len(report.failures)]))
"""


# `test_kinds_of_machines.py` has such machines, and one without a GPU.
@only_in_a_sweep
def test_where_one_of_two_gpus_lacks_the_named_encoder_the_other_one_does_all(sources: Path, tmp_path: Path) -> None:
    """An H100 beside an L4. The driver has a process and a home of its own, like that of a user."""
    with_nvenc, without = install(tmp_path / "L4"), install(tmp_path / "H100", nvenc=NO_ENGINE)
    machines = [
        {"num_cpus": num_cpus, "num_gpus": 1, "env_vars": {ENVIRONMENT_VARIABLE: gpu.path}}
        for gpu, num_cpus in ((with_nvenc, 1), (without, 3))
    ]
    (tmp_path / "home").mkdir()
    environment = user_environment(tmp_path / "home", PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-c", _ON_TWO_MACHINES, str(sources), str(tmp_path / "dataset"), json.dumps(machines)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [_VIDEOS, 0]
    assert len(with_nvenc.runs()) == _VIDEOS
