"""Where the files of a dataset lie on a disk, for tests that look at them or damage them."""

from pathlib import Path

from shortgop.manifests.dataset_files.layout import part_key, shard_key, snapshot_key

LOCK_FILE = ".lock"


def shard_path(dataset: Path, name: str) -> Path:
    return dataset / shard_key(name)


def part_path(dataset: Path, part: str) -> Path:
    return dataset / part_key(part)


def snapshot_path(dataset: Path, snapshot: str) -> Path:
    """A zip file, or the folder that version 1 of the format wrote."""
    file = dataset / snapshot_key(snapshot)
    folder = file.with_suffix("")
    return folder if folder.is_dir() and not file.exists() else file
