"""Files that are called videos and are something else: the reason says what they are, and what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, numbered
from shortgop.prep.probing.containers.file_kinds import HEAD_BYTES, what_else
from shortgop.prep.probing.probe import probe

_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
_PAGE = b"\n<!-- made by a server -->\n<!DOCTYPE html>\n<html><title>404</title></html>"
_DENIED = b'\xef\xbb\xbf<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>'
_BINARY = bytes(range(1, 256)) * 40


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A transport stream of 10 frames."""
    return encode_pictures(tmp_path_factory.mktemp("kinds") / "x.ts", numbered(range(10)), *X264).read_bytes()


def _tar(content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in ("0.ts", "1.ts"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _zip(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("0.ts", content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("pack", "kind"),
    [
        (_tar, "it is a tar archive; unpack it, or rename it so that it ends in .tar"),
        (_zip, "it is a zip archive; unpack it"),
        (gzip.compress, "it is a gzip file; unpack it"),
        (bz2.compress, "it is a bzip2 file; unpack it"),
        (lzma.compress, "it is an xz file; unpack it"),
    ],
)
def test_a_video_in_an_archive_is_not_searched_for(
    pack: Callable[[bytes], bytes], kind: str, stream: bytes, tmp_path: Path
) -> None:
    """FFmpeg takes two transport streams in a tar for one."""
    (tmp_path / "x.ts").write_bytes(pack(stream))
    with pytest.raises(shortgop.NotAVideoError) as refused:
        probe(str(tmp_path / "x.ts"))
    assert f"{tmp_path}/x.ts does not open as a video: {kind}" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("x.mp4", _LFS, "it is a Git LFS pointer; run `git lfs pull` in its repository"),
        ("x.mkv", b"../../.git/annex/objects/xX/0q/SHA256E-s9--ab.mkv\n", "it is a git-annex pointer; run `git annex"),
        ("x.mp4", _PAGE, "it is an HTML page; read it to see what went wrong, and download the video again"),
        ("x.mp4", _DENIED, "it is XML; read it to see what went wrong, and download the video again"),
        ("x.webm", json.dumps({"error": 404}).encode(), "it is JSON; read it to see what went wrong"),
        ("x.avi", "Nur ein Text über nichts.\n".encode(), "it is text; read it"),
        ("x.mp4", bytes(9000), "it begins with zeros where a video has its header: its download"),
        ("x.mpg", bytes(100), "it begins with zeros where a video has its header: its download"),
        ("x.mp4", b"\0\0\0\x10ftypisom\0\0\0\0" + _BINARY + bytes(9000), "it ends in zeros, so its download"),
        ("x.mp4.part", b"\0\0\0\x10ftypisom\0\0\0\0" + _BINARY, "its download or copy has not finished, as its name"),
        ("x.mp4", b"\0\5\x16\7\0\2\0\0Mac OS X        ", "it is the attributes that macOS keeps of another file"),
    ],
)
def test_a_file_that_is_no_video_is_called_what_it_is(name: str, content: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(shortgop.NotAVideoError) as refused:
        probe(str(tmp_path / name))
    assert f"{tmp_path / name} does not open as a video: {kind}" in str(refused.value)


def test_an_avi_that_lost_its_beginning_is_not_read_as_a_raw_stream(tmp_path: Path) -> None:
    """The packets of MPEG-4 in it look like one, with the headers of chunks in between."""
    source = encode_pictures(tmp_path / "x.avi", numbered(range(30)), "-c:v", "mpeg4", "-q:v", "2")
    source.write_bytes(bytes(8192) + source.read_bytes()[8192:])
    with pytest.raises(shortgop.NotAVideoError, match="it begins with zeros where a video has its header"):
        probe(str(source))


def test_what_is_unknown_is_called_nothing() -> None:
    assert what_else("x.mp4", b"", b"") == ""
    assert what_else("x.mp4", _BINARY[:HEAD_BYTES], _BINARY[-HEAD_BYTES:]) == ""


def test_a_text_whose_head_ends_within_a_character_is_a_text() -> None:
    head = b"a" + ("ü" * HEAD_BYTES).encode()[: HEAD_BYTES - 1]
    assert "it is text" in what_else("x.mp4", head, head)
    assert what_else("x.mp4", head[::-1], head) == ""


def test_in_a_job_it_is_a_failure_and_the_video_beside_it_is_prepared(stream: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "good.ts").write_bytes(stream)
    (folder / "lfs.ts").write_bytes(_LFS)
    report = make_dataset([folder], tmp_path / "dataset")
    assert [failure.id for failure in report.failures] == ["lfs.ts"]
    assert "it is a Git LFS pointer" in report.failures[0].reason
    assert len(shortgop.open(tmp_path / "dataset")[0]) == 10
