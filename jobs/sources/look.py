"""Looking at a job's sources before anything is encoded: their fingerprints, sizes and lengths."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TypeVar

from ...errors import SourceError
from ...machine_memory import memory_limit_bytes
from ...prep.options import Options, SourcePolicy
from ...prep.probing.header_estimate import Estimate, estimate
from ...prep.running.mounts import read_in_time
from ...prep.running.stalls import given_up_when, stall_limit
from ...prep.section_plan import expected_pixels, expected_seconds
from ...prep.timing.stretch import Stretch
from ..finding.identity import identity_of
from ..finding.source import Source
from ..finding.source_parts import identity_of_part
from ..finding.store_files import StoreFile, asked, copied, identity_of_file
from ..units_of_work.task_memory import header_bytes, looks_of_driver
from ..units_of_work.units import Item

# Reading the index of a file in a store takes some requests. Where a window has so many files in stores, only the sizes
# are known, from the listing, and progress is without the number of frames until each is planned. A large corpus in a
# store has as many in its first window already.
_MANY_IN_STORES = 1000
_LEAST_SECONDS = 1e-3

# That of a file that does not open as a video.
_NO_HEADER = Estimate()

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Expected:
    """About how many frames a source will have, how many seconds one core will take for them, 0 if it is in the dataset
    or its header does not say, how many bytes of memory, None if that is not known, and why it cannot be looked at,
    nothing if it can. `is_silent`: its header was read, and says nothing at all."""

    frames: int = 0
    seconds: float = 0.0
    memory_bytes: int | None = None
    problem: str = ""
    is_silent: bool = False


@dataclass(frozen=True)
class Looked:
    """A source as it is now, and what is expected of it."""

    item: Item
    expected: Expected


@dataclass(frozen=True)
class There:
    """What a dataset has: the fingerprints of its videos by id, and the ids of those that are to be made `again`. With
    `replace` those whose source has changed are, too."""

    identities: Mapping[str, int] = field(default_factory=dict)
    again: Collection[str] = ()
    replace: bool = False

    def of(self, sources: Sequence[Source]) -> There:
        """What it has of these sources, which may be sent to other machines."""
        ids = {source.id for source in sources}
        return There(
            {video_id: self.identities[video_id] for video_id in ids if video_id in self.identities},
            frozenset(video_id for video_id in ids if video_id in self.again),
            self.replace,
        )

    def stays(self, source: Source, identity: int) -> bool:
        """Whether the video of a source with this fingerprint stays as it is."""
        is_there = self.identities.get(source.id) == identity if self.replace else source.id in self.identities
        return is_there and source.id not in self.again


NOTHING = There()


def count_in_stores(sources: Iterable[Source]) -> int:
    """How many sources of a window lie in stores. Of many, no header is read.

    That depends on the window alone: a job plans its first one before it has found all sources, and the job that goes
    on has to plan the same units.
    """
    return sum(source.in_store is not None for source in sources)


def look_at(
    sources: Sequence[Source],
    options: Options,
    there: There = NOTHING,
    *,
    num_in_store: int | None = None,
    is_over: Callable[[], bool] = bool,
    threads: int | None = None,
) -> list[Looked]:
    """Each source with its fingerprint and size, and what is expected of it; `threads` of them are looked at at a time,
    by default as many as this machine's memory is enough for.

    The length of a video that stays is not looked up. `num_in_store` is how many sources of the window lie in stores,
    by default how many of these do. CancelledError as soon as `is_over` says that nobody waits for it any more.
    """
    looker = _Looker(options, there, count_in_stores(sources) if num_in_store is None else num_in_store)
    ended = threading.Event()

    def given_up() -> bool:
        return ended.is_set() or is_over()

    def look(source: Source) -> Looked:
        if given_up():
            raise CancelledError
        with given_up_when(given_up):
            return looker.look(source)

    with ThreadPoolExecutor(threads or looks_of_driver(memory_limit_bytes())) as pool:
        try:
            return list(pool.map(look, sources))
        except BaseException:
            # Otherwise Ctrl-C would wait for all of them, and for those that hang.
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Looker:
    """Looks at sources, in several threads. Stretches of a file share its fingerprint and its header, so each file is
    asked for these once."""

    def __init__(self, options: Options, there: There, num_in_store: int) -> None:
        self._options = options
        self._there = there
        self._reads_stored_headers = num_in_store < _MANY_IN_STORES
        self._identity_of = _once(identity_of)
        self._stored = _once(asked)
        self._header_on_disk = _once(partial(estimate, fps=options.profile.fps))
        self._header_in_store = _once(partial(_estimate_in_store, fps=options.profile.fps))

    def look(self, source: Source) -> Looked:
        """A source as it is now, also one that cannot be read."""
        try:
            return looked_in_time(source.path, self._options.policy, lambda: self._look_closely(source))
        except SourceError as error:
            # The file of a video in the dataset may be gone. The failure of any other source is recorded by its unit.
            return Looked(Item(source, self._there.identities.get(source.id, 0), 0), Expected(problem=str(error)))

    def _look_closely(self, source: Source) -> Looked:
        file = source.in_store
        if file is None:
            identity, size_bytes = identity_of_part(source.path, source.part, self._identity_of)
        else:
            # From here on the source is the file that lies there now.
            file = StoreFile(file.address, self._stored(file))
            source = source._replace(in_store=file)
            identity, size_bytes = identity_of_part(source.path, source.part, lambda _path: identity_of_file(file))
        item, part = Item(source, identity, size_bytes), source.part
        if self._there.stays(source, identity) or not (part is None or isinstance(part, Stretch)):
            return Looked(item, Expected())
        header = self._header(source)
        expected = _expected(header or _NO_HEADER, part, self._options)
        return Looked(item, replace(expected, is_silent=header == _NO_HEADER))

    def _header(self, source: Source) -> Estimate | None:
        """What the header of a file says, None if it is not read."""
        if source.in_store is None:
            return self._header_on_disk(source.path)
        return self._header_in_store(source.in_store) if self._reads_stored_headers else None


def _once(find: Callable[[_K], _T]) -> Callable[[_K], _T]:
    """`find`, which is called once for each argument, also where several threads ask at the same time."""
    lock = threading.Lock()
    found: dict[_K, Future[_T]] = {}

    def of(argument: _K) -> _T:
        with lock:
            is_first = argument not in found
            future = found.setdefault(argument, Future())
        if is_first:
            try:
                future.set_result(find(argument))
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()

    return of


def _expected(header: Estimate, part: Stretch | None, options: Options) -> Expected:
    pixels = expected_pixels(header.width, header.height, options.profile.size)
    source_pixels = header.width * header.height
    seconds = expected_seconds(header.source_frames, source_pixels, header.frames, pixels)
    memory_bytes = header_bytes(header, options)
    if part is None:
        return Expected(header.frames, seconds, memory_bytes)
    if not (header.duration_seconds and header.is_seekable):
        # The file is read from its start for any of its stretches.
        return Expected(memory_bytes=memory_bytes)
    whole = max(1, header.source_frames) if part.in_frames else header.duration_seconds
    end = whole if part.end is None else min(float(part.end), whole)
    first, last = (each / whole for each in (float(part.start), max(float(part.start), end)))
    # So many that those of stretches, one after the other, add up to the frames of the file.
    frames = round(header.frames * last) - round(header.frames * first)
    # More than 0, which says that it is known.
    return Expected(frames, max(seconds * (last - first), _LEAST_SECONDS), memory_bytes)


def _estimate_in_store(file: StoreFile, fps: Fraction | None) -> Estimate:
    """What the header and the index of a file in a store say: the rest is not read."""
    try:
        with copied(file) as copy:
            return estimate(copy.reader(), fps)
    except SourceError:
        return _NO_HEADER


def looked_in_time(path: str, policy: SourcePolicy, work: Callable[[], _T]) -> _T:
    """What `work`, which looks at the file at a path, returns. StalledError if its disk does not answer."""
    with stall_limit(float(policy.max_stall_seconds)):
        return read_in_time(path, work, "looking at it")
