"""Where the page of a report cannot be written, that is said before any work begins."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner

from flaky_proxy import Faults, FlakyProxy
from shortgop.cli import app
from shortgop.errors import OutputError, UsageError
from shortgop.reporting.dataset_report import check_report
from shortgop.reporting.page_file import PageInStore, page_file
from shortgop.reporting.page_html import GENERATOR
from shortgop.storage.bucket import Bucket
from shortgop.storage.locate import storage_at
from shortgop.storage.network import NetworkOptions
from shortgop.storage.objects import ObjectStorage
from store_helpers import put, put_raw
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


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def found_at(url: str) -> tuple[str, str]:
    """An object of the server that the environment names, as text, and its type."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    found = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).get_object(Bucket=bucket, Key=key)
    return found["Body"].read().decode(), found["ContentType"]


def test_a_job_whose_machines_are_gone_afterwards_leaves_its_page_in_a_store(s3_url: str, tmp_path: Path) -> None:
    """A browser shows it there, because of its type."""
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(Fraction(30), 30), timebase=Fraction(1, 30))
    page = f"{s3_url}/pages/job.html"
    command = ["prep", tmp_path / "a.mp4", "--out", f"{s3_url}/dataset", "--runner", "inline", "--report", page]
    assert run(*command).exit_code == 0
    text, kind = found_at(page)
    assert "The job finished" in text
    assert kind.startswith("text/html")


def test_a_page_in_a_store_replaces_an_earlier_one_and_nothing_else(s3_url: str, published: Path) -> None:
    page = f"{s3_url}/page.html"
    command = ["report", published, "--out", page, "--clips", 0]
    for _ in range(2):
        assert run(*command).exit_code == 0
    put(page, b"mine")
    refused = run(*command)
    assert (refused.exit_code, found_at(page)[0]) == (2, "mine")
    assert f"{page} exists" in refused.output.replace("\n", "")
    assert run(*command, "--overwrite").exit_code == 0
    assert found_at(page)[0] != "mine"


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("dataset/page.html", "lies within the dataset"),
        ("dataset/sub/page.html", "lies within the dataset"),
        ("page.txt", "give one that ends in .htm or .html"),
        ("", "names no file; give the URL of one in a bucket"),
        ("a//page.html", "a part of it is empty"),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_where_no_page_may_be_in_a_store_nothing_is_done(
    page: str, said: str, is_there: bool, s3_url: str, tmp_path: Path
) -> None:
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(Fraction(30), 30), timebase=Fraction(1, 30))
    command = ["prep", tmp_path / "a.mp4", "--out", f"{s3_url}/dataset", "--runner", "inline"]
    if is_there:
        assert run(*command).exit_code == 0
    refused = run(*command, "--report", f"{s3_url}/{page}")
    assert refused.exit_code == 2
    assert said in " ".join(refused.output.replace("\u2502", " ").split())
    is_dataset = run("info", f"{s3_url}/dataset").exit_code == 0
    assert is_dataset == is_there


def test_a_page_lies_beside_keys_that_are_no_paths(s3_url: str, published: Path) -> None:
    """Whoever put them there: the folder is not listed for a page."""
    put_raw(f"{s3_url}/pages/cameras//a\x1b.txt", b"content")
    done = run("report", published, "--out", f"{s3_url}/pages/report.html", "--clips", 0)
    assert done.exit_code == 0
    assert storage_at(f"{s3_url}/pages").find("report.html") is not None


def test_a_page_may_not_be_in_another_dataset_either(s3_url: str, published: Path) -> None:
    root = (published / "zarr.json").read_bytes()
    put(f"{s3_url}/other/zarr.json", root)
    refused = run("report", published, "--out", f"{s3_url}/other/pages/a.html", "--clips", 0)
    assert refused.exit_code == 2
    assert f"lies within the dataset {s3_url}/other;" in refused.output.replace("\n", "")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("https://host/a.html?sig=topsecret", "https://host/a.html is on a web server, to which nothing is written"),
        ("s3://page.html", "s3://page.html names no file; give the URL of one in a bucket"),
        ("s3:/corpus/a.html", "write s3://corpus/a.html"),
        ("ftp://host/a.html", "ftp:// is not known"),
        ("s3://no-such-bucket-here/a.html", "no such bucket"),
    ],
)
def test_urls_at_which_no_page_can_be_are_wrong_usage(
    page: str, said: str, s3_url: str, published: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("report", published, "--out", page, "--clips", 0)
    assert refused.exit_code == 2
    assert said in refused.output.replace("\n", "")
    assert "topsecret" not in refused.output
    assert list(tmp_path.rglob("*.html")) == []


def test_a_store_that_does_not_answer_is_asked_for_one_folder(s3_proxy: FlakyProxy, proxied_url: str) -> None:
    """And not for each one above: with a mistyped address that took as many times as long."""
    s3_proxy.faults(Faults(failed=1))
    s3_proxy.forget()
    page = PageInStore(storage_at(f"{proxied_url}/a/b/c", network=NetworkOptions(retries=1)), "page.html")
    with pytest.raises(OutputError, match=r"page.html: the server answered 50\d"):
        page.check(storage_at(f"{proxied_url}/dataset"), overwrite=False)
    assert {request.key.rpartition("/")[0] for request in s3_proxy.requests()} == {f"{s3_proxy.prefix}/a/b/c"}


def test_credentials_for_the_folder_of_the_page_alone_are_enough(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles are often limited to a prefix, or to putting new objects."""
    _, _, prefix = s3_url.removeprefix("s3://").partition("/")
    for name in ("find", "read", "all_files"):
        allowed = getattr(Bucket, name)

        def limited(self: Bucket, key: str, *others: Any, allowed: Any = allowed, **more: Any) -> Any:
            if not self.root.key(key).startswith(f"{prefix}/pages"):
                raise PermissionError(errno.EACCES, "AccessDenied", self.place(key))
            return allowed(self, key, *others, **more)

        monkeypatch.setattr(Bucket, name, limited)
    page = page_file(f"{s3_url}/pages/a.html")
    page.check(storage_at(f"{s3_url}/dataset"), overwrite=False)
    page.write(b"page", overwrite=False)
    assert found_at(f"{s3_url}/pages/a.html")[0] == "page"
    unseen = page_file(f"{s3_url}/others/a.html")
    unseen.check(storage_at(f"{s3_url}/dataset"), overwrite=False)
    unseen.write(b"page", overwrite=False)
    assert found_at(f"{s3_url}/others/a.html")[0] == "page"


def test_of_two_jobs_that_write_a_page_at_the_same_time_the_later_one_is_there(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_file(f"{s3_url}/a.html")
    head = f'<meta name="generator" content="{GENERATOR}">'.encode()
    page.write(head + b"first", overwrite=False)
    replace = ObjectStorage.replace
    between = [head + b"second"]

    def replaced_late(self: ObjectStorage, key: str, data: bytes, version: str | None) -> bool:
        if between:
            replace(self, key, between.pop(), version)
        return replace(self, key, data, version)

    monkeypatch.setattr(ObjectStorage, "replace", replaced_late)
    page.write(head + b"third", overwrite=False)
    assert found_at(f"{s3_url}/a.html")[0].endswith("third")
    between.append(b"mine")
    with pytest.raises(UsageError, match="exists; write somewhere else, or replace it with --overwrite"):
        page.write(head + b"fourth", overwrite=False)
    assert found_at(f"{s3_url}/a.html")[0] == "mine"
