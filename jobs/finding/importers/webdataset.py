"""WebDataset tars: each sample with a video becomes a video.

The format is that of the library `webdataset`: files with the same name up to the first dot of their last part are a
sample, if they follow one another in the tar. The rest of the name says what a file is.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ....errors import UsageError
from ....wording import counted
from ..files_beside import MAX_COLUMN_BYTES, GivenColumns, add_columns, columns_of, has_columns
from ..importing import Importing
from ..source_parts import Imported, Member, Recognised
from ..video_names import is_video_name

_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)


@dataclass
class _Sample:
    """The files of a sample: its videos with their endings, and the columns that the others make. `twice` names the
    first two files that give a column different values."""

    key: str
    videos: list[tuple[str, tarfile.TarInfo]] = field(default_factory=list)
    columns: GivenColumns = field(default_factory=dict)
    twice: str = ""


def samples_of(tar: Path, importing: Importing) -> Recognised:
    """The videos in a tar: id is the sample's key, or `<key>.<ending>` in samples with several videos.

    The other files of a sample make columns (`files_beside`). Where two of them give a column different values, that
    of the later one counts, and `importing.note_twice` is called. Those that do not follow the video of their sample,
    or it them, make none, and `importing.note_apart` is called. UsageError where the tar cannot be read, or holds no
    videos.
    """
    importing.note_read_tar(str(tar.absolute()))
    sources: list[Imported] = []
    with_video, without = set[str](), dict[str, str]()
    for sample in _samples(tar):
        if sample.videos:
            with_video.add(sample.key)
        elif sample.columns:
            without.setdefault(sample.key, next(file for file, _ in sample.columns.values()))
        if sample.videos and sample.twice:
            importing.note_twice(sample.twice)
        columns = {name: value for name, (_, value) in sample.columns.items()}
        for ending, member in sample.videos:
            several = len(sample.videos) > 1
            sources.append(
                Imported(
                    id=f"{sample.key}.{ending.rpartition('.')[0] or ending}" if several else sample.key,
                    path=tar,
                    given=f"{tar}/{member.name}",
                    attributes=columns,
                    part=Member(member.name, member.offset_data, member.size),
                    place=f"in the tar {str(tar)!r}",
                )
            )
    if not sources:
        raise UsageError(f"the tar {str(tar)!r} holds no videos; give another", file=str(tar))
    for key, file in without.items():
        if key in with_video:
            importing.note_apart(f"{tar}: {file!r} is not next to the video of its sample, which gets no column of it")
    return Recognised(f"a WebDataset tar of {counted(len(sources), 'video')}", tuple(sources))


def _check_end(tar: Path) -> None:
    """UsageError for a tar that was cut off between two members, which reads like a shorter one: POSIX ends an archive
    with blocks of zeros."""
    with tar.open("rb") as file:
        file.seek(-min(tarfile.BLOCKSIZE, tar.stat().st_size), os.SEEK_END)
        if any(file.read()):
            raise UsageError(
                f"the tar {str(tar)!r} has no end, so samples may be missing; copy it again", file=str(tar)
            )


def _samples(tar: Path) -> Iterator[_Sample]:
    sample: _Sample | None = None
    try:
        if tar.is_fifo():
            raise UsageError(f"{str(tar)!r} is a pipe, but tars are files; give one", file=str(tar))
        # Without compression: a member can be read at its place.
        with tarfile.open(tar, "r:") as archive:
            for member in archive:
                found = _NAME.fullmatch(member.name)
                if found is None or not member.isreg():
                    continue
                key, ending = found.group(1), found.group(2).lower()
                if sample is None or key != sample.key:
                    if sample is not None:
                        yield sample
                    sample = _Sample(key)
                if is_video_name(member.name):
                    sample.videos.append((ending, member))
                elif member.size <= MAX_COLUMN_BYTES:
                    _add_columns(sample, ending, member, archive, tar)
    except PermissionError as error:
        raise UsageError(
            f"the tar {str(tar)!r} cannot be read: permission denied; change its permissions", file=str(tar)
        ) from error
    except (tarfile.TarError, OSError) as error:
        raise UsageError(
            f"cannot read {str(tar)!r} as a tar: {error}; unpack it if it is compressed, else copy it again",
            file=str(tar),
        ) from error
    _check_end(tar)
    if sample is not None:
        yield sample


def _add_columns(sample: _Sample, ending: str, member: tarfile.TarInfo, archive: tarfile.TarFile, tar: Path) -> None:
    if has_columns(ending):
        stream = archive.extractfile(member)
        data = b"" if stream is None else stream.read()
        new = columns_of(ending, data, f"{member.name!r} in the tar {str(tar)!r}", str(tar))
        twice = add_columns(sample.columns, new, member.name)
        if twice is not None and not sample.twice:
            column, other = twice
            sample.twice = f"{tar}: {other!r} and {member.name!r} give the column {column!r} different values"
