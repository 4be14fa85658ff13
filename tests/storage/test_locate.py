"""Which storage a path or a URL means."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shortgop.errors import UsageError, WrongTypeError
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import is_url, storage_at
from shortgop.storage.objects import ObjectStorage


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a b/c%20d/", "s3://bucket/a b/c%20d"),
        ("S3://bucket/A", "s3://bucket/A"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
        ("abfss://container@account.dfs.core.windows.net/a", "abfss://container@account.dfs.core.windows.net/a"),
        ("https://host:8080/a/b", "https://host:8080/a/b"),
        ("memory://name", "memory://name"),
    ],
)
def test_urls_of_stores(text: str, url: str) -> None:
    storage = storage_at(text)
    assert isinstance(storage, ObjectStorage)
    assert storage.url == url
    assert storage.folder is None
    assert is_url(text)


@pytest.mark.parametrize("text", ["dataset", "/data/set", "./s3:/a", "C:\\data", "a://b", "~/x", "data:set", "1s3://b"])
def test_everything_else_is_a_path(text: str) -> None:
    storage = storage_at(text)
    assert isinstance(storage, DiskStorage)
    assert storage.folder == Path(text).expanduser().absolute()
    assert not is_url(text)


def test_file_urls_are_paths() -> None:
    assert storage_at("file:///data/a%20set").folder == Path("/data/a set")
    assert storage_at("file://localhost/data").folder == Path("/data")
    with pytest.raises(UsageError, match="write it as file:///folder"):
        storage_at("file://host/data")


@pytest.mark.parametrize("place", ["a\0b", Path("a\0b"), "file:///a%00b"])
def test_a_null_byte_is_refused_before_the_system_does(place: str | Path) -> None:
    with pytest.raises(UsageError, match=r"a\\x00b' has a null byte, and no path has one; leave it out"):
        storage_at(place)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://host/a", "ftp:// is not known; known are paths, s3://"),
        ("hdfs://host/a", "hdfs:// is not known"),
        ("s3://", "has no bucket; write s3://bucket/folder"),
        ("s3:///a", "has no bucket; write s3://bucket/folder"),
        ("az:///a", "has no container"),
        ("https://", "has no host"),
        ("s3:/bucket/a", "write s3://bucket/a"),
        ("s3:bucket/a", "write s3://bucket/a"),
        ("gs:/bucket", "write gs://bucket"),
        ("s3://bucket/a//b", "a part of it is empty"),
        ("s3://bucket/../b", "a part of it is empty, '.' or '..'"),
        ("abfss://container/a", "has no account"),
        ("https://host/a?token=1", "cannot end in a query"),
        ("", "is empty"),
    ],
)
def test_urls_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        storage_at(text)
    assert message in str(caught.value)
    assert text in str(caught.value)


def test_a_path_object_holds_no_url() -> None:
    with pytest.raises(UsageError, match="a Path cannot hold a URL; give it as text"):
        storage_at(Path("s3://bucket/dataset"))


@pytest.mark.parametrize("place", [None, 5, b"s3://bucket"])
def test_what_is_no_place(place: object) -> None:
    with pytest.raises(WrongTypeError, match="give a path, or a URL as text"):
        storage_at(place)  # type: ignore[arg-type]


@given(st.text(max_size=30))
@example("~\0")
def test_any_text_is_a_place_or_an_error_that_names_it(text: str) -> None:
    message = ""
    try:
        assert storage_at(text).url
    except UsageError as error:
        message = str(error)
    # A null byte is written as an escape.
    assert not message or text in message or ("\0" in text and "null byte" in message)


def test_a_url_with_a_line_break_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'s3://bucket/a\\nb' has a line break or another control character"):
        storage_at("s3://bucket/a\nb")


@pytest.mark.parametrize("bucket", ["my bucket", "b\u00fccket"])
def test_a_bucket_that_cannot_be_is_named(bucket: str) -> None:
    """It was asked for nine times, and called a failure of the network."""
    with pytest.raises(UsageError, match=f"s3://{bucket}/x: no bucket is called '{bucket}'"):
        storage_at(f"s3://{bucket}/x")


def test_a_place_below_a_folder_that_was_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another job has removed the folder of this one: the commands ended in a traceback."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    with pytest.raises(
        UsageError, match="'dataset' is below the current folder, which does not exist any more; change"
    ):
        storage_at("dataset")
    assert storage_at(tmp_path / "dataset").folder == tmp_path / "dataset"
