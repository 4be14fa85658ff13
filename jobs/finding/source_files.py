"""The file that prep reads for a source: its own, or a temporary one made from a part of it.

A video in a tar is copied out of it, one at a time, and removed as soon as it is prepared. So it passes all checks that
a file passes. FFmpeg could read it at its place, but prep also reads headers, ends and indexes of files by itself.
Pictures in a Parquet file are written out likewise, those of one episode at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from ...errors import ShortGopError, SourceError
from ...prep.options import Options, SourcePolicy
from ...storage.interface import Storage
from ...whole_files import discard, writing
from .importers.images import ShownPicture, concat_script, sequence_of
from .importers.picture_rows import write_pictures
from .source import Source
from .source_parts import Images, Member, PictureRows

_COPY_BYTES = 1 << 20


@contextlib.contextmanager
def source_file(dataset: Storage, source: Source, policy: SourcePolicy) -> Iterator[str]:
    """The path of a source's file. Errors in the block name the source as the user knows it."""
    part = source.part
    if not isinstance(part, Member | Images | PictureRows):
        yield source.path
        return
    folder = dataset.scratch("source")
    pictures = folder / "pictures"
    suffix = Path(part.name).suffix.lower() if isinstance(part, Member) else ".ffconcat"
    made = folder / f"source{suffix}"
    try:
        with writing(folder):
            folder.mkdir()
        if isinstance(part, Member):
            _copy(source, part, made)
        elif isinstance(part, PictureRows):
            write_pictures(Path(source.path), part, pictures)
            numbered = Images(tuple(map(str, range(part.length))), part.fps, is_ordered=True)
            _write_script(sequence_of(str(pictures), numbered, policy), part.fps, made)
        else:
            _write_script(sequence_of(source.path, part, policy), part.fps, made)
        yield str(made)
    except ShortGopError as error:
        error.message = error.message.replace(str(made), source.given)
        if isinstance(part, PictureRows):
            error.message = error.message.replace(f"{pictures}/", f"{part.place}, frame ")
        error.file = source.path
        raise
    finally:
        discard(folder)


def options_of(options: Options, source: Source) -> Options:
    """The options for a source. Pictures are encoded at the rate of the source, unless the profile has a rate. So is
    one that is alone, always: it stays one frame."""
    profile, part = options.profile, source.part
    is_one = isinstance(part, Images) and len(part.files) == 1
    if not isinstance(part, Images | PictureRows) or (profile.fps is not None and not is_one):
        return options
    return replace(options, profile=replace(profile, fps=part.fps))


def _write_script(shown: Sequence[ShownPicture], fps: Fraction, made: Path) -> None:
    """Write a concat script for pictures. It names links without suffixes, since FFmpeg takes the names of some
    pictures for patterns of names."""
    links = [made.parent / f"{number}" for number in range(len(shown))]
    with writing(made.parent):
        for link, each in zip(links, shown, strict=True):
            link.symlink_to(each.file)
        script = concat_script(
            [ShownPicture(link.name, each.frames) for link, each in zip(links, shown, strict=True)], fps
        )
        made.write_text(script, encoding="utf-8")


def _copy(source: Source, member: Member, made: Path) -> None:
    with writing(made), made.open("wb") as copy:
        for data in _bytes_of(source, member):
            copy.write(data)


def _bytes_of(source: Source, member: Member) -> Iterator[bytes]:
    left = member.length
    try:
        with Path(source.path).open("rb") as tar:
            tar.seek(member.offset)
            while left:
                data = tar.read(min(left, _COPY_BYTES))
                if not data:
                    raise SourceError(f"{source.given} is cut off; copy the tar again", file=source.path)
                yield data
                left -= len(data)
    except OSError as error:
        raise SourceError(
            f"cannot read {source.path}: {error.strerror or error}; fix that, or copy it again", file=source.path
        ) from error
