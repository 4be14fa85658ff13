"""The file that a page is written to: one of this host, or one in a store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from errno import EILSEQ, EIO, ETIMEDOUT
from pathlib import Path, PurePosixPath
from typing import Protocol

from ..errors import DatasetError, OutputError, UsageError
from ..manifests.dataset_files.root_file import is_dataset, read_root
from ..manifests.operations.output_files import check_output, new_file, sources_in
from ..storage.interface import Storage
from ..storage.locate import file_path, is_url, lies_inside, refuse_half_a_url, storage_at
from ..whole_files import writing
from .page_html import GENERATOR

SUFFIXES = (".htm", ".html")
_HEAD_BYTES = 1 << 10
# How often a page is written that other jobs write at the same time.
_ATTEMPTS = 10
_MARK = f'<meta name="generator" content="{GENERATOR}">'.encode()


class PageFile(Protocol):
    """Where a page is written. An earlier page is replaced, any other file only with `overwrite`."""

    def check(self, dataset: Storage, *, overwrite: bool) -> None:
        """UsageError or OutputError if no page about `dataset` can be written; nothing is written. The dataset need not
        be there yet."""
        ...

    def write(self, data: bytes, *, overwrite: bool) -> None:
        """Write the page, whole or not at all. UsageError or OutputError if that fails."""
        ...


def page_file(out: str | os.PathLike[str]) -> PageFile:
    """The file at a path or a URL. UsageError if a URL makes no sense."""
    text = os.fspath(out)
    if not is_url(text):
        refuse_half_a_url(text, is_path=isinstance(out, os.PathLike))
        return PageOnHost(Path(text))
    if text.lower().startswith("file:"):
        return PageOnHost(file_path(text))
    folder, _, name = text.rpartition("/")
    if folder.endswith("/"):
        # There is no folder, only the bucket.
        folder, name = text, ""
    return PageInStore(storage_at(folder), name)


@dataclass(frozen=True)
class PageOnHost:
    """A file of this host."""

    path: Path

    def check(self, dataset: Storage, *, overwrite: bool) -> None:
        may_replace = overwrite or self._is_page()
        check_output(self.path, suffixes=SUFFIXES, overwrite=may_replace, sources=_sources(dataset))
        with writing(self.path):
            self._check_folder(dataset)

    def write(self, data: bytes, *, overwrite: bool) -> None:
        with new_file(self.path, overwrite=overwrite or self._is_page()) as temporary:
            temporary.write_bytes(data)

    def _is_page(self) -> bool:
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            return _MARK in file.read(_HEAD_BYTES)
        return False

    def _check_folder(self, dataset: Storage) -> None:
        """UsageError if no file can be made in the folder, or if the dataset will be there. A link counts as its
        target."""
        out, folder = self.path, self.path.resolve().parent
        if not is_url(dataset.url) and folder.is_relative_to(Path(dataset.url).resolve()):
            raise UsageError(f"{out} lies within the dataset {dataset}; write somewhere else", file=str(out))
        if not folder.is_dir():
            what = "is a file; " if folder.exists() else "does not exist; make that folder first, or "
            raise UsageError(f"cannot write {out}: {folder} {what}write somewhere else", file=str(out))
        # Not by writing a file: whoever watches the folder would see it.
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise UsageError(
                f"cannot write {out}: no file can be made in {folder}; give yourself permission to write there, or "
                "write somewhere else",
                file=str(out),
            )


@dataclass(frozen=True)
class PageInStore:
    """A file below a URL. Whether the credentials allow writing is found out by writing."""

    folder: Storage
    name: str

    def check(self, dataset: Storage, *, overwrite: bool) -> None:
        # The query of a presigned URL is a secret.
        url = self.folder.place(self.name.partition("?")[0])
        if url.startswith(("http://", "https://")):
            raise UsageError(f"{url} is on a web server, to which nothing is written; write somewhere else", file=url)
        if not self.name:
            raise UsageError(f"{url} names no file; give the URL of one in a bucket", file=url)
        if PurePosixPath(self.name).suffix.lower() not in SUFFIXES:
            raise UsageError(f"{url} is no name of a page; give one that ends in {' or '.join(SUFFIXES)}", file=url)
        if self.folder == dataset or lies_inside(self.folder, dataset):
            raise UsageError(f"{url} lies within the dataset {dataset}; write somewhere else", file=url)
        with writing(url):
            for folder in self._folders():
                if _may_be_dataset(folder):
                    raise UsageError(f"{url} lies within the dataset {folder}; write somewhere else", file=url)
            # In a store nothing is made: it says whether there is such a bucket.
            try:
                self.folder.make()
            except OutputError as error:
                # Roles may be for putting objects alone, and others may have put keys there that cannot be listed.
                cause = error.__cause__
                if not (isinstance(cause, PermissionError) or (isinstance(cause, OSError) and cause.errno == EILSEQ)):
                    raise
            self._version(overwrite=overwrite)

    def write(self, data: bytes, *, overwrite: bool) -> None:
        url = self.folder.place(self.name)
        for _ in range(_ATTEMPTS):
            with writing(url):
                version = self._version(overwrite=overwrite)
            if self.folder.replace(self.name, data, version):
                return
        raise OutputError(f"{url} is changed all the time; write somewhere else", file=url)

    def _version(self, *, overwrite: bool) -> str | None:
        """The version of the file that is to be replaced, None if there is none. UsageError if it must not be."""
        try:
            found = self.folder.find(self.name)
            head = b"" if found is None else self.folder.read(self.name, 0, min(_HEAD_BYTES, found.num_bytes))
        except PermissionError:
            # Whoever may not look may be allowed to put a new file.
            return None
        if found is not None and not overwrite and _MARK not in head:
            url = self.folder.place(self.name)
            raise UsageError(f"{url} exists; write somewhere else, or replace it with --overwrite", file=url)
        return None if found is None else found.version

    def _folders(self) -> Iterator[Storage]:
        """The folder of the file, and those above it."""
        yield self.folder
        scheme, _, path = self.folder.url.partition("://")
        while "/" in path:
            path = path.rpartition("/")[0]
            yield storage_at(f"{scheme}://{path}")


def _may_be_dataset(folder: Storage) -> bool:
    """Whether a folder is a dataset. False also where one must not look: credentials may be for the page's own folder
    alone. OSError if the store does not answer: each folder above would be asked as long."""
    try:
        return is_dataset(folder)
    except DatasetError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (EIO, ETIMEDOUT):
            raise error.__cause__ from None
        return False


def _sources(dataset: Storage) -> Iterator[str]:
    """The sources that a page must not replace; none before the first snapshot."""
    if is_dataset(dataset) and read_root(dataset).snapshot is not None:
        yield from sources_in(dataset)
