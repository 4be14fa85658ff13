"""Files that work on a store keeps for a while in the folder for temporary files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loader_helpers import comes_true
from process_names import process_named
from scratch_holders import holder, killed
from shortgop.errors import OutputError
from shortgop.storage import scratch
from shortgop.storage.scratch import remove_abandoned, remove_copies_of_ending, scratch_copy, scratch_path

_PATIENCE_SECONDS = 60
# A new container: its processes see each other alone, and the files of all.
_CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def is_removed(path: Path) -> bool:
    remove_abandoned()
    return not path.exists()


def skip_without_containers() -> None:
    if (
        not shutil.which("unshare")
        or subprocess.run([*_CONTAINER, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("process numbers of its own take rights that are missing here")


def test_only_the_user_sees_these_files(temporary: Path) -> None:
    one, other = scratch_path("source.mp4"), scratch_path("source.mp4")
    assert one != other
    assert one.parent == other.parent
    assert one.parent.parent == temporary
    assert one.parent.stat().st_mode & 0o777 == 0o700


def test_the_name_of_the_process_may_be_cut_in_the_middle_of_a_character() -> None:
    """The system keeps 15 bytes of it. Workers of Ray have the names of sources."""
    with process_named("ray::小猫视频".encode()):
        path = scratch_path("source.mp4")
        path.touch()
        assert not is_removed(path)
    assert not is_removed(path)


def test_a_folder_that_others_may_write_to_is_refused() -> None:
    folder = scratch_path("source.mp4").parent
    folder.chmod(0o777)
    with pytest.raises(OutputError, match="other users may write to .*; remove it, or set TMPDIR"):
        scratch_path("source.mp4")


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    folder = scratch_path("source.mp4").parent
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="other users may write to"):
        scratch_path("source.mp4")


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(temporary: Path) -> None:
    own = scratch_path("own")
    own.touch()
    with holder(temporary) as (kept, _):
        left = killed(temporary)
        remove_abandoned(of_all_containers=False)
        assert not left.parent.exists()
        assert kept.exists()
    assert own.exists()


def test_a_process_that_goes_on_leaves_nothing(temporary: Path) -> None:
    with scratch_copy("source.mp4") as (path, _):
        assert path.stat().st_mode & 0o777 == 0o600
    assert files_below(temporary) == []


def test_a_killed_process_is_known_though_its_number_is_another_ones_by_now(temporary: Path) -> None:
    left = killed(temporary).parent
    pid, _, rest = left.name.partition("-")
    assert pid != str(os.getpid())
    again = left.rename(left.with_name(f"{os.getpid()}-{rest}"))
    remove_abandoned()
    assert not again.exists()


def test_a_process_that_ended_and_that_nobody_waited_for_counts_as_ended(temporary: Path) -> None:
    with holder(temporary) as (left, process):
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        remove_abandoned()
        assert not left.exists()


def test_what_was_left_before_the_system_was_started_again_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network file system it may be what another host has."""
    left = scratch_path("own")
    left.touch()
    monkeypatch.setattr(scratch, "boot", lambda: "another")
    with monkeypatch.context() as patch:
        patch.setattr(scratch, "shared_between_hosts", lambda _folder: "nfs4")
        remove_abandoned()
        assert left.exists()
    remove_abandoned()
    assert not left.exists()


def test_what_a_container_left_is_removed_by_another_one_that_has_its_disk(temporary: Path) -> None:
    """As where a pod's container is killed for its memory and started again."""
    skip_without_containers()
    with holder(temporary, *_CONTAINER) as (kept, _):
        left = killed(temporary, *_CONTAINER)
        assert len({left.parent.parent, kept.parent.parent, scratch_path("own").parent}) == 3
        # The processes of a container end a moment after its first one.
        assert comes_true(lambda: is_removed(left.parent), _PATIENCE_SECONDS)
        remove_abandoned()
        assert kept.exists()
    assert comes_true(lambda: is_removed(kept), _PATIENCE_SECONDS)
    assert files_below(temporary) == []


def test_what_other_hosts_have_on_a_network_file_system_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need not see each other's locks."""
    skip_without_containers()
    left = killed(temporary, *_CONTAINER)
    with monkeypatch.context() as patch:
        patch.setattr(scratch, "shared_between_hosts", lambda _folder: "nfs4")
        assert not comes_true(lambda: is_removed(left), 1.0)
    assert comes_true(lambda: is_removed(left), _PATIENCE_SECONDS)


def test_a_copy_that_another_container_removes_before_it_is_locked_is_made_anew(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, removed = scratch._lock, list[Path]()

    def lock_late(folder: Path, descriptor: int) -> None:
        if not removed:
            removed.append(folder / "source.mp4")
            with monkeypatch.context() as patch:
                # To another container the folder is not its own.
                patch.setattr(scratch, "_folder", lambda: temporary / "shortgop-other")
                remove_abandoned()
            assert not removed[0].exists()
        lock(folder, descriptor)

    monkeypatch.setattr(scratch, "_lock", lock_late)
    with scratch_copy("source.mp4") as (path, descriptor):
        assert path != removed[0]
        assert os.path.samestat(path.stat(), os.fstat(descriptor))
    assert files_below(temporary) == []


def test_copies_of_processes_that_are_about_to_end_are_removed_and_not_waited_for_without_end(temporary: Path) -> None:
    with holder(temporary) as (left, process), ThreadPoolExecutor(1) as pool, scratch_copy("own") as (own, _):
        done = pool.submit(remove_copies_of_ending, _PATIENCE_SECONDS)
        with pytest.raises(TimeoutError):
            done.result(0.3)
        assert left.exists()
        process.kill()
        done.result(_PATIENCE_SECONDS / 2)
        assert not left.exists()
        assert own.exists()
    with holder(temporary) as (kept, _):
        remove_copies_of_ending(0.1)
        assert kept.exists()
