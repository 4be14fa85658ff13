"""ClipTable.from_parquet of a folder: the clips of all its files, as pyarrow reads a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from shortgop.errors import UsageError
from training_videos import make_videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def written(folder: Path, policy: Any, file: Path) -> list[dict[str, Any]]:
    """Write the clips of a policy to a file; returns their items."""
    dataset = shortgop.ClipDataset(folder, policy)
    file.parent.mkdir(exist_ok=True)
    dataset.clip_table().to_parquet(file)
    return list(dataset)


def test_a_folder_stands_for_all_its_files_in_order(folder: Path, tmp_path: Path) -> None:
    expected = [
        *written(folder, shortgop.CenterClips(6, stride=3, ends="black"), tmp_path / "a.parquet"),
        # Without a mask: each frame is the one that was called for.
        *written(folder, shortgop.CenterClips(6), tmp_path / "b" / "part.parquet"),
    ]
    written(folder, shortgop.CenterClips(2), tmp_path / "_ignored.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").write_text("no table")
    items = list(shortgop.ClipDataset(folder, shortgop.ClipTable.from_parquet(tmp_path)))
    assert len(items) == len(expected) == 6
    for item, other in zip(items, expected, strict=True):
        assert torch.equal(item["frames"], other["frames"])
        assert torch.equal(item["frame_numbers"], other["frame_numbers"])
        assert (item["video"], item["start"]) == (other["video"], other["start"])
        assert torch.equal(item["mask"], other.get("mask", torch.ones(6, dtype=torch.bool)))
    assert not items[2]["mask"].all()
    only = shortgop.ClipTable.from_parquet(tmp_path / "b")
    assert (len(only), only.mask) == (3, None)


def test_a_folder_without_tables_is_refused(folder: Path, tmp_path: Path) -> None:
    """It was said to have no column 'frames'."""
    (tmp_path / "notes.txt").write_text("no table")
    with pytest.raises(UsageError, match=r"is a folder without files that end in \.parquet; give the file that"):
        shortgop.ClipTable.from_parquet(tmp_path)
    (tmp_path / "broken.parquet").write_text("no table")
    with pytest.raises(UsageError, match=r"broken\.parquet cannot be read as a Parquet file"):
        shortgop.ClipTable.from_parquet(tmp_path)


def test_files_that_do_not_go_together_are_named(folder: Path, tmp_path: Path) -> None:
    written(folder, shortgop.CenterClips(6, stride=3, ends="black"), tmp_path / "a.parquet")
    written(folder, shortgop.CenterClips(6, stride=3, ends="clamp"), tmp_path / "b.parquet")
    said = f"of {tmp_path / 'b.parquet'} and {tmp_path / 'a.parquet'}, only one has black frames"
    with pytest.raises(UsageError, match=re.escape(said)):
        shortgop.ClipTable.from_parquet(tmp_path)
    (tmp_path / "b.parquet").unlink()
    written(folder, shortgop.CenterClips(5), tmp_path / "c.parquet")
    with pytest.raises(UsageError, match=r"c\.parquet has clips of 5 frames, .*a\.parquet of 6: .* one by one"):
        shortgop.ClipTable.from_parquet(tmp_path)
