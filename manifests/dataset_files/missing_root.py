"""Where zarr.json is missing: whether other files tell that there is a dataset, and what to say then."""

from __future__ import annotations

import re
from shlex import quote

from ...errors import MissingDataError, NotADatasetError, UnreadableDataError
from ...storage.interface import NO_BUCKET, Storage
from ...wording import unreplaced
from .layout import ROOT_KEY, listed

DATASET_REMEDY = "give the folder that `shortgop prep --out` wrote"


class LacksRootError(NotADatasetError, MissingDataError):
    """There is a dataset that lacks zarr.json alone."""


def is_without_root(dataset: Storage) -> bool:
    """Whether there is a folder of snapshots beside which zarr.json is missing. False in a store."""
    return dataset.folder is not None and (dataset.folder / "manifest").is_dir()


def tells_its_root(dataset: Storage) -> bool:
    """Whether there is a snapshot or a part, of which zarr.json can be made again. False where a web server has no
    listings. Version 1 of the format wrote snapshots that do not tell. UnreadableDataError where a disk refuses to list
    them."""
    # Other folders may be called so.
    names = {"manifest": r"manifest/\d+\.zip", "parts": r"parts/[0-9a-f]{16}(\.\d+)?\.zip"}
    try:
        return any(re.fullmatch(name, file.key) for folder, name in names.items() for file in listed(dataset, folder))
    except UnreadableDataError:
        # On a disk this is no answer: a dataset would be taken for none.
        if dataset.folder is not None:
            raise
        return False


def or_repair(dataset: Storage) -> str:
    """The end of a remedy, where zarr.json can be made again."""
    if not tells_its_root(dataset):
        return ""
    return f", or run `shortgop verify {quote(str(dataset))} --repair`, which makes it again"


def lacks_root_text(dataset: Storage) -> str:
    """What to say of a dataset that lacks zarr.json alone; "" where no folder tells of a dataset."""
    folder = _left_folder(dataset)
    if folder is None:
        return ""
    return (
        f"{dataset} has a folder `{folder}` and no zarr.json: it is a dataset that lacks this file; copy it there, "
        f"too{or_repair(dataset)}"
    )


def no_dataset(dataset: Storage, error: OSError) -> NotADatasetError:
    """What to raise where zarr.json was not found with this error."""
    path = dataset.folder
    if error.strerror == NO_BUCKET:
        said = f"{dataset}: {NO_BUCKET}; check its name"
    elif lacks_root := lacks_root_text(dataset):
        return LacksRootError(lacks_root, file=dataset.place(ROOT_KEY))
    elif path is not None and not path.exists():
        said = f"{dataset} does not exist; {unreplaced(str(dataset))}{DATASET_REMEDY}"
    elif path is not None and path.is_file():
        said = f"{dataset} is a file; {DATASET_REMEDY}"
    else:
        said = f"{dataset} holds no dataset; {DATASET_REMEDY}"
    return NotADatasetError(said, file=dataset.place(ROOT_KEY))


def _left_folder(dataset: Storage) -> str | None:
    """The folder that tells of a dataset; None where a web server has no listings."""
    try:
        if any(listed(dataset, "manifest")):
            return "manifest"
    except UnreadableDataError:
        if dataset.folder is not None:
            raise
        return None
    return "parts" if tells_its_root(dataset) else None
