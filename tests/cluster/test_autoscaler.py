"""A cluster of a head alone, whose other machines come when work waits and go when there is none: Ray's own
autoscalers, and a provider of theirs that starts machines as processes on this one."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID, FAKE_HEAD_NODE_TYPE

import shortgop
from loader_helpers import comes_true
from padded_sources import PADDED_FRAMES, make_padded
from ray_heads import free_ports, ray_head
from ray_machines import alive_at
from sweep import sample
from synthetic import read_number

pytestmark = pytest.mark.long

# One machine would take so long for them that another one comes meanwhile.
_VIDEOS = 40
_MOST_MACHINES = 2
_NO_COMMANDS = (
    "cluster_synced_files", "initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands",
    "head_start_ray_commands", "worker_start_ray_commands",
)  # fmt: skip
_FIRST = {"RAY_enable_autoscaler_v2": "0"}
_SECOND = {
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
}


def cluster_file(folder: Path, address: str) -> Path:
    """What `ray up` would be given: a head without CPUs, and at most two machines of one CPU, none at first."""
    worker = {"CPU": 1, "memory": 2_000_000_000, "object_store_memory": 100_000_000}
    cluster = {
        "cluster_name": "autoscaled",
        "max_workers": _MOST_MACHINES,
        "idle_timeout_minutes": 0.1,
        "provider": {
            "type": "external", "module": "autoscaled_machines.Machines", "gcs_address": address,
            "head_node_id": FAKE_HEAD_NODE_ID, "launch_multiple": True, "use_node_id_as_ip": True,
        },
        "available_node_types": {
            FAKE_HEAD_NODE_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": worker, "node_config": {}, "min_workers": 0, "max_workers": _MOST_MACHINES},
        },
        "head_node_type": FAKE_HEAD_NODE_TYPE,
        "upscaling_speed": 4.0,
        # What `ray up` adds before it gives the file to the head.
        **{name: {} for name in ("auth", "docker", "file_mounts")},
        **{name: [] for name in _NO_COMMANDS},
    }  # fmt: skip
    (folder / "cluster.yaml").write_text(json.dumps(cluster))
    return folder / "cluster.yaml"


@contextmanager
def counted_machines(address: str) -> Iterator[list[int]]:
    """How many machines there are besides the head, each time that was looked."""
    seen: list[int] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.5):
            seen.append(len(alive_at(address)) - 1)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


# `ray up` takes the first one here (jobs/ray_up).
@pytest.mark.parametrize(
    "autoscaler", sample([_FIRST], more=[_SECOND]), ids=lambda settings: settings["RAY_enable_autoscaler_v2"]
)
def test_machines_come_for_a_job_and_go_after_it(autoscaler: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    sources = make_padded(tmp_path / "sources", _VIDEOS)
    (port,) = free_ports(1)
    settings = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1", "PYTHONPATH": os.pathsep.join(sys.path),
        **autoscaler,
    }  # fmt: skip
    options = (
        f"--autoscaling-config={cluster_file(tmp_path, f'127.0.0.1:{port}')}", f"--port={port}", "--num-cpus=0",
        "--node-ip-address=127.0.0.1",
    )  # fmt: skip
    with ray_head(*options, token=False, helpers=(), settings=settings) as head:
        assert len(alive_at(head.address)) == 1
        with counted_machines(head.address) as seen:
            report = shortgop.prepare(str(sources), tmp_path / "dataset", address=head.address, size=160)
        assert (report.videos_added, report.failures) == (_VIDEOS, ())
        # Two units wait where there is no machine yet, and as many as there are cores wait later on.
        assert max(seen) == _MOST_MACHINES
        assert comes_true(lambda: len(alive_at(head.address)) == 1, 90), "machines without work stay"
    for number, video in enumerate(shortgop.open(tmp_path / "dataset")):
        assert [read_number(video[0]), read_number(video[-1])] == [100 * number, 100 * number + PADDED_FRAMES - 1]
