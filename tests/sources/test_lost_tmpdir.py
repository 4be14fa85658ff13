"""A folder for temporary files that goes away, or can no longer be written to, while a job runs: that is no fault of
the sources, which are in a store."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from file_permissions import modes_count
from object_sources import look, make, prepare, run
from shortgop.errors import OutputError
from store_helpers import put


@pytest.mark.parametrize("how", ["removed", "read-only"])
def test_copies_that_cannot_be_made_are_no_failures_of_their_sources(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    put(f"{s3_url}/a.mp4", make(tmp_path / "a.mp4"))
    prepare(make(tmp_path / "other.mp4"), tmp_path / "dataset")
    items = look(s3_url)
    folder = tmp_path / "temporary"
    if how == "read-only":
        folder.mkdir(mode=0o500)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with modes_count(), pytest.raises(OutputError, match=f"copies of sources cannot be kept in {folder}: .*TMPDIR"):
        run(items, tmp_path / "dataset")


def test_a_machine_without_any_folder_for_temporary_files_is_told_of(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(f"{s3_url}/a.mp4", make(tmp_path / "a.mp4"))
    prepare(make(tmp_path / "other.mp4"), tmp_path / "dataset")
    items = look(s3_url)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "nowhere")])
    with pytest.raises(OutputError, match=r"copies of sources cannot be kept: No usable .*; set TMPDIR to a folder"):
        run(items, tmp_path / "dataset")
