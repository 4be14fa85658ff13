"""The local file of a source in a store, for as long as the source is prepared.

It is fetched whole, since prep reads a file twice at least, and most formats not from front to back. Exceptions are
stretches and sections of an MP4, and the pictures of an episode in a Parquet file: an index says which bytes they need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from ...errors import NotAVideoError, ShortGopError, SourceError
from ...manifests.tables import Manifest
from ...prep.encode_cuts import CutOut, prepare_cuts
from ...prep.options import Options, SourcePolicy
from ...prep.part_of_file import Needed, NeedsWholeFileError
from ...prep.probing.header_estimate import Estimate, estimate
from ...prep.probing.playlists import SCRIPT_SUFFIXES
from ...prep.running.attempts import tried_again
from ...prep.running.mounts import read_in_time
from ...prep.running.stalls import in_time, stall_limit
from ...prep.section_survey import SourceSurvey, survey
from ...prep.shards import ShardWriter
from ...prep.timing.stretch import Stretch
from ...storage.interface import Storage
from ...storage.local_copy import LocalCopy
from .identity import identity_of
from .importers.picture_rows import fetch_pictures
from .source import Source
from .source_files import source_file
from .source_parts import Fingerprint, PictureRows, SourcePart, identity_of_part
from .store_files import StoreFile, check_same, copied, identity_of_file, told

_Count = Callable[[int], None]
_T = TypeVar("_T")

# A smaller file is fetched whole, which takes hardly longer than to find out what is needed of it.
_MIN_PART_BYTES = 1 << 23
_AGAIN = "looking at it again"


@dataclass(frozen=True)
class SourceFile:
    """The file that prep reads for a source. `copy` is that of a file in a store: nothing of it needs to be there
    before `whole`."""

    path: str
    source: Source
    policy: SourcePolicy
    copy: LocalCopy | None = None

    def header(self) -> Estimate:
        """What its header says; of a file in a store nothing else is fetched. It says nothing if it cannot be read."""
        copy = self.copy
        return self._in_time(lambda: estimate(self.path if copy is None else copy.reader(), None), "reading its header")

    def check_unchanged(self, identity: int) -> None:
        """SourceError if what lies on a disk is no longer what had this identity when the job looked at it: its rows
        would call it by what it was. A file in a store is known by its ETag, and fetching another one fails."""
        source = self.source
        if source.in_store is None and self._in_time(lambda: self._identities([source.part]), _AGAIN) != [identity]:
            raise SourceError(
                f"{source.path} was changed after the job had looked at it; run the same command again",
                file=source.path,
            )

    def identities(self, parts: Sequence[SourcePart | None]) -> list[int]:
        """The fingerprints of parts of what lies there now, of all of it for None. SourceError if it cannot be looked
        at: it is tried once, for all parts."""
        with stall_limit(float(self.policy.max_stall_seconds)):
            return read_in_time(self.source.path, lambda: self._identities(parts), _AGAIN)

    def _identities(self, parts: Sequence[SourcePart | None]) -> list[int]:
        file, copy = self.source.in_store, self.copy

        @lru_cache(maxsize=1)
        def of_file(path: str) -> Fingerprint:
            if file is None:
                return identity_of(path)
            return identity_of_file(StoreFile(file.address, None if copy is None else copy.stored))

        return [identity_of_part(self.source.path, part, of_file)[0] for part in parts]

    def whole(self) -> str:
        """The path, once all of the file is there. SourceError if it cannot be fetched."""
        return self._with(lambda copy: copy.fetch_all())

    def part(self, needed: Needed | None) -> str:
        """The path, once what is needed of the file is there. SourceError if it cannot be fetched."""
        return self._with(lambda copy: copy.fetch(needed.ranges if needed is not None else ()))

    def fetch_pictures(self, part: PictureRows) -> None:
        """Fetch what the pictures of an episode need of a Parquet file. SourceError if it cannot be fetched."""
        self._with(lambda copy: fetch_pictures(copy, part))

    def _with(self, fetch: Callable[[LocalCopy], None]) -> str:
        copy, file = self.copy, self.source.in_store

        def fetch_same() -> None:
            if copy is not None and file is not None:
                fetch(copy)
                check_same(file.address, copy)

        if copy is not None:
            self._in_time(fetch_same, "downloading it")
        return self.path

    def _in_time(self, work: Callable[[], _T], what: str) -> _T:
        file = self.source.in_store

        def named() -> _T:
            with told(file.address) if file is not None else contextlib.nullcontext():
                return work()

        with stall_limit(float(self.policy.max_stall_seconds)):
            return tried_again(self.path, lambda: in_time(named, what))


@contextlib.contextmanager
def file_of(
    dataset: Storage, source: Source, policy: SourcePolicy, opened: SourceFile | None = None
) -> Iterator[SourceFile]:
    """The file of a source, in the block; `opened` where it is open already. Errors in the block name the source as the
    user knows it."""
    if opened is not None:
        with _naming(opened.path, source):
            yield opened
        return
    if source.in_store is None:
        with source_file(dataset, source, policy) as path:
            yield SourceFile(path, source, policy)
        return
    url = source.in_store.address.url
    if Path(url).suffix.lower() in SCRIPT_SUFFIXES:
        raise NotAVideoError(
            f"{url} is called like a script or a playlist, and those are read from disks; give the files that it names",
            file=url,
        )
    with copied(source.in_store) as copy, _naming(str(copy.path), source):
        file = SourceFile(str(copy.path), source, policy, copy)
        if not isinstance(source.part, PictureRows):
            yield file
            return
        file.fetch_pictures(source.part)
        with source_file(dataset, source._replace(path=str(copy.path)), policy) as path:
            yield SourceFile(path, source, policy)


@contextlib.contextmanager
def _naming(made: str, source: Source) -> Iterator[None]:
    try:
        yield
    except ShortGopError as error:
        _say_given(error, made, source)
        raise


def cut_out(
    file: SourceFile,
    cuts: Sequence[CutOut],
    options: Options,
    ffmpeg_path: str,
    shards: ShardWriter,
    *,
    on_plan: _Count,
    on_frames: _Count,
) -> list[Manifest | Exception]:
    """Like `prepare_cuts`. Of a long MP4 in a store only what the stretches need is fetched."""
    copy = file.copy
    if copy is not None and copy.num_bytes >= _MIN_PART_BYTES:
        frames = 0

        def count(more: int) -> None:
            nonlocal frames
            frames += more
            on_frames(more)

        try:
            done = prepare_cuts(
                file.path, cuts, options, ffmpeg_path, shards, on_plan=on_plan, on_frames=count, part=copy
            )
        except NeedsWholeFileError:
            on_frames(-frames)
        else:
            return _named(done, file)
    done = prepare_cuts(file.whole(), cuts, options, ffmpeg_path, shards, on_plan=on_plan, on_frames=on_frames)
    return _named(done, file)


def surveyed(file: SourceFile, options: Options, ffmpeg_path: str) -> SourceSurvey:
    """Like `survey`, for the source's stretch if it is one. Of an MP4 in a store only the index is fetched, and a few
    pictures; any other file in a store is fetched whole, and is there for the encode if it is not cut."""
    stretch = file.source.part if isinstance(file.source.part, Stretch) else None
    if file.copy is not None:
        try:
            found = survey(file.path, options, ffmpeg_path, part=file.copy, stretch=stretch)
        except NeedsWholeFileError:
            return survey(file.whole(), options, ffmpeg_path, stretch=stretch, is_copy=True)
        # Whether it is still the same file.
        file.part(None)
        return found
    return survey(file.path, options, ffmpeg_path, stretch=stretch)


def _named(done: list[Manifest | Exception], file: SourceFile) -> list[Manifest | Exception]:
    for each in done:
        if isinstance(each, ShortGopError):
            _say_given(each, file.path, file.source)
    return done


def _say_given(error: ShortGopError, made: str, source: Source) -> None:
    if made != source.path:
        error.message = error.message.replace(made, source.given)
        error.file = source.path
