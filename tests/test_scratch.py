"""Files that work on a store keeps for a while in the folder for temporary files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from shortgop.errors import OutputError
from shortgop.storage.scratch import scratch_path


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_only_the_user_sees_these_files(temporary: Path) -> None:
    one, other = scratch_path("source.mp4"), scratch_path("source.mp4")
    assert one != other
    assert one.parent == other.parent
    assert one.parent.parent == temporary
    assert one.parent.stat().st_mode & 0o777 == 0o700


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
