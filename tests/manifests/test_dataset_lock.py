"""The lock of a dataset on a disk: one process writes at a time, and what a dead one left does not stay."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from example_manifests import video
from file_permissions import modes_count
from shortgop.cli import app
from shortgop.errors import DatasetBusyError, OutputError
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.storage.disk import DiskStorage


def test_one_job_at_a_time(empty_dataset: Path) -> None:
    busy = pytest.raises(DatasetBusyError, match=r"another job is writing to .*dataset; wait")
    with DiskStorage(empty_dataset).lock(), busy, DiskStorage(empty_dataset).lock():
        pass
    with DiskStorage(empty_dataset).lock():
        pass


def test_a_script_can_tell_from_a_failure_that_another_job_writes(empty_dataset: Path) -> None:
    with DiskStorage(empty_dataset).lock():
        result = CliRunner().invoke(app, ["annotate", str(empty_dataset), "--remove", "label"])
    assert (result.exit_code, "another job is writing" in result.stderr) == (5, True)


def test_what_a_dead_job_left_is_removed_and_its_lock_is_gone(empty_dataset: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from shortgop.storage.disk import DiskStorage\n"
        "with DiskStorage(sys.argv[1]).lock():\n"
        "    (Path(sys.argv[1]) / '.tmp').mkdir()\n"
        "    (Path(sys.argv[1]) / '.tmp' / 'half a shard').touch()\n"
        "    print('locked', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(empty_dataset)], stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"locked\n"
        with pytest.raises(DatasetBusyError), DiskStorage(empty_dataset).lock():
            pass
        assert (empty_dataset / ".tmp" / "half a shard").exists()
        job.send_signal(signal.SIGKILL)
    with DiskStorage(empty_dataset).lock():
        assert not (empty_dataset / ".tmp").exists()


def test_the_lock_of_a_dead_job_is_waited_for_while_a_process_that_it_was_starting_has_it(empty_dataset: Path) -> None:
    script = (
        "import os, sys, time; from pathlib import Path; from shortgop.storage.disk import DiskStorage\n"
        "with DiskStorage(sys.argv[1]).lock():\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(1); os._exit(0)\n"
        "    os._exit(9)\n"
    )
    started = time.monotonic()
    assert subprocess.run([sys.executable, "-c", script, str(empty_dataset)], check=False).returncode == 9
    with DiskStorage(empty_dataset).lock():
        assert time.monotonic() - started >= 1


def test_a_folder_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="nowhere: No such file"), DiskStorage(tmp_path / "nowhere").lock():
        pass


def test_a_folder_without_permission(empty_dataset: Path) -> None:
    empty_dataset.chmod(0o500)
    try:
        with modes_count(), pytest.raises(OutputError, match="give yourself permission"):
            write_part(DiskStorage(empty_dataset), "u1", video("a"))
    finally:
        empty_dataset.chmod(0o700)
