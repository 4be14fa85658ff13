"""Matroska files whose chapters say in which order players show their parts."""

from __future__ import annotations

from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, numbered
from synthetic import read_number

FRAMES = 20


def element(kind: str, *content: bytes) -> bytes:
    body = b"".join(content)
    return bytes.fromhex(kind) + (1 << 56 | len(body)).to_bytes(8) + body


def chapter(start_ms: int, end_ms: int, *others: bytes) -> bytes:
    start, end = (element(kind, (ms * 1_000_000).to_bytes(8)) for kind, ms in (("91", start_ms), ("92", end_ms)))
    return element("b6", element("73c4", b"\1"), start, end, *others)


def edition(*chapters: bytes, ordered: bool = True, default: bool = False) -> bytes:
    return element("45b9", element("45dd", bytes([ordered])), element("45db", bytes([default])), *chapters)


@pytest.fixture(scope="module")
def matroska(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("chapters") / "x.mkv"
    # Written as a stream, a file has no positions of elements that would have to move.
    return encode_pictures(path, numbered(range(FRAMES)), *X264, "-live", "1", rate=25).read_bytes()


def with_chapters(data: bytes, *editions: bytes) -> bytes:
    """The file with chapters before its tracks."""
    # A list of the elements, which comes first, names them too.
    tracks = data.rindex(bytes.fromhex("1654ae6b"), 0, data.index(bytes.fromhex("1f43b675")))
    return data[:tracks] + element("1043a770", *editions) + data[tracks:]


@pytest.mark.parametrize(
    "editions",
    [
        [edition(chapter(400, 800), chapter(0, 400))],
        [edition(chapter(0, 200), chapter(400, 800))],
        [edition(chapter(400, 800))],
        [edition(chapter(0, 400), chapter(400, 800, element("6e67", bytes(16))))],
        [edition(chapter(0, 800)), edition(chapter(400, 800), chapter(0, 400), default=True)],
    ],
    ids=["another order", "a part left out", "not the beginning", "another file", "the default edition"],
)
def test_a_file_that_players_show_in_another_order_is_refused(
    editions: list[bytes], matroska: bytes, tmp_path: Path
) -> None:
    (tmp_path / "x.mkv").write_bytes(with_chapters(matroska, *editions))
    (failure,) = make_dataset([tmp_path / "x.mkv"], tmp_path / "dataset").failures
    assert f"{tmp_path}/x.mkv has ordered chapters" in failure.reason
    assert "`ffmpeg -i FILE -map 0 -c copy -map_chapters -1 OUT.mkv`" in failure.reason


def test_chapters_behind_the_frames_are_found_by_the_list_of_elements(matroska: bytes, tmp_path: Path) -> None:
    def listed(position: int) -> bytes:
        entry = element("53ab", bytes.fromhex("1043a770")), element("53ac", position.to_bytes(8))
        return element("114d9b74", element("4dbb", *entry))

    # The segment has an id of four bytes and a size of eight.
    segment = matroska.index(bytes.fromhex("18538067")) + 12
    position = len(matroska) - segment + len(listed(0))
    data = matroska[:segment] + listed(position) + matroska[segment:]
    edited = element("1043a770", edition(chapter(400, 800), chapter(0, 400)))
    (tmp_path / "x.mkv").write_bytes(data + edited)
    (failure,) = make_dataset([tmp_path / "x.mkv"], tmp_path / "dataset").failures
    assert "has ordered chapters" in failure.reason
    # Where the file ends before them, they are unknown.
    (tmp_path / "x.mkv").write_bytes(data)
    assert make_dataset([tmp_path / "x.mkv"], tmp_path / "dataset").failures == ()


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    "editions",
    [
        [edition(chapter(0, 400), chapter(401, 800))],
        [edition(chapter(400, 800), chapter(0, 400), ordered=False)],
        [edition(chapter(400, 800)), edition(chapter(0, 800), default=True)],
        [edition()],
        [],
    ],
    ids=["the order of the file", "chapters to jump to", "the default edition", "no chapter", "no edition"],
)
def test_other_chapters_change_nothing(editions: list[bytes], matroska: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.mkv").write_bytes(with_chapters(matroska, *editions))
    assert make_dataset([tmp_path / "x.mkv"], tmp_path / "dataset").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]] == list(range(FRAMES))
