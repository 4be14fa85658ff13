"""Where the page of a report cannot be written, that is said before any work begins."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shortgop.cli import app
from shortgop.errors import UsageError
from shortgop.reporting.dataset_report import check_report
from synthetic import constant_rate_pts, make_video


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere, so its rights are put aside; others keep theirs."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("nothing/page.html", "nothing does not exist; make that folder first, or write somewhere else"),
        ("mine/page.html", "mine is a file; write somewhere else"),
        ("folder.html", "folder.html is a folder; give the name of a file"),
        ("link.html", "nothing does not exist; make that folder first"),
        ("dataset/page.html", "lies within the dataset"),
        ("n" * 300 + ".html", "File name too long"),
    ],
)
def test_prep_does_nothing_where_its_page_could_not_be_written(tmp_path: Path, page: str, said: str) -> None:
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(Fraction(30), 30), timebase=Fraction(1, 30))
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "link.html").symlink_to(tmp_path / "nothing" / "page.html")
    before = sorted(tmp_path.rglob("*"))
    options = ["--out", tmp_path / "dataset", "--runner", "inline", "--report", tmp_path / page]
    done = CliRunner().invoke(app, ["prep", str(tmp_path / "a.mp4"), *map(str, options)])
    assert done.exit_code == 2
    assert said in done.output
    assert str(tmp_path / page) in done.output
    assert sorted(tmp_path.rglob("*")) == before, "not even an empty dataset"


def test_a_folder_in_which_no_file_can_be_made_gets_no_report() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "page.html").write_text("an earlier report")
        folder.chmod(0o555)
        with as_nobody(), pytest.raises(UsageError, match=f"no file can be made in {folder}; give yourself permission"):
            check_report(folder / "page.html", "/tmp/no-dataset", clips=0, overwrite=True)
        assert [file.read_text() for file in folder.iterdir()] == ["an earlier report"]
        folder.chmod(0o755)
        check_report(folder / "page.html", "/tmp/no-dataset", clips=0, overwrite=True)
        assert [file.read_text() for file in folder.iterdir()] == ["an earlier report"]
