"""The status that a job keeps in its dataset: a file that is replaced every few seconds while the job runs."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace

from ...errors import CorruptDataError, ShortGopError, not_read
from ...storage.interface import Storage
from .job_status import STATUS_KEY, JobStatus, NoStatusError, Task, read_status, status_left
from .status_board import StatusBoard
from .tally import Tally

_WRITE_EVERY_SECONDS = 5.0
# Names that are likely to be a part of a number or of a word that has nothing to do with them.
_SHORT = re.compile("[0-9A-Za-z]{1,3}")


class FollowedJob:
    """A job whose status is kept in the dataset, from the first call of `begin` until `kept` is closed."""

    def __init__(self, dataset: Storage, tally: Tally, kept: contextlib.ExitStack) -> None:
        self._dataset = dataset
        self._tally = tally
        self._kept = kept
        self._file_before, self._before = status_left(dataset)
        self._has_begun = self._encodes = False

    @property
    def follows_another(self) -> bool:
        """Whether an earlier job left a status, perhaps one that cannot be read."""
        return self._file_before is not None

    def begin(self) -> None:
        """Keep the status from now on."""
        if not self._has_begun:
            self._has_begun = True
            board = StatusBoard((), earlier=() if self._before is None else self._before.history)
            self._tally.tell(board)
            self._kept.enter_context(status_kept(self._dataset, board, put_back=self._put_back))

    def encodes(self) -> None:
        """The job has something to encode."""
        self._encodes = True
        self.begin()

    def _put_back(self) -> bytes | None:
        was_finished = self._before is not None and self._before.state == "finished"
        return self._file_before if was_finished and not self._encodes else None


@contextlib.contextmanager
def job_followed(dataset: Storage, tally: Tally, *, at_once: bool) -> Iterator[FollowedJob]:
    """Keeps the status of the job in the dataset until the block ends. The block says when the job `encodes`.

    The status begins `at_once`, or where an earlier job left one: otherwise that job would seem to be the last one, or
    to be dead, while this one finds its sources and compares them. Elsewhere it begins with the first thing to encode.
    A job that finds nothing to do after a finished one leaves the status of that one, which says more. The caller holds
    the writer lock.
    """
    with contextlib.ExitStack() as kept:
        job = FollowedJob(dataset, tally, kept)
        if at_once or job.follows_another:
            job.begin()
        yield job


def _nothing() -> None:
    """A `put_back` of `status_kept` that puts nothing back."""


@contextlib.contextmanager
def status_kept(
    dataset: Storage,
    board: StatusBoard,
    every_seconds: float = _WRITE_EVERY_SECONDS,
    *,
    put_back: Callable[[], bytes | None] = _nothing,
) -> Iterator[None]:
    """Writes the board's status into the dataset while the block runs, and once more when it ends. If the block ends
    without an error, the file that `put_back` then gives is written instead, if any."""
    ended = threading.Event()

    def keep() -> None:
        while True:
            _write(dataset, _as_file(board.status()))
            if ended.wait(every_seconds):
                return

    writer = threading.Thread(target=keep, name="status", daemon=True)
    writer.start()
    state, reason, earlier = "finished", "", None
    try:
        yield
        earlier = put_back()
    except BaseException as error:
        state = "ended"
        reason = _why(error)
        raise
    finally:
        ended.set()
        writer.join()
        _write(dataset, _as_file(board.status(state, reason)) if earlier is None else earlier)


def _why(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        # That is what a signal becomes: Ctrl-C, SIGTERM, `ray job stop`.
        return "it was interrupted"
    return str(error) if isinstance(error, ShortGopError) else type(error).__name__


def _as_file(status: JobStatus) -> bytes:
    return json.dumps(asdict(status)).encode()


def _write(dataset: Storage, data: bytes) -> None:
    # Only for people: a full disk or a store that does not answer shows elsewhere.
    with contextlib.suppress(ShortGopError, OSError):
        stored = dataset.find(STATUS_KEY)
        dataset.replace(STATUS_KEY, data, None if stored is None else stored.version)


def forget_sources(dataset: Storage, names: Collection[str]) -> None:
    """Take what has one of `names`, ids and paths of sources that were dropped, out of the status that the last job
    left: these of its tasks, and the reason why it ended. A name may be a part of a word: it is better to lose a text
    than to keep one that names what was dropped. In reasons and notes the shortest names count as whole words. The
    caller holds the writer lock, so a job that seems to run has died; the new file would be a sign of its life, and
    says that it ended.

    UnreadableDataError if the file cannot be read, OutputError if it cannot be written.
    """
    try:
        stored = dataset.find(STATUS_KEY)
        found = read_status(dataset)
    except NoStatusError:
        return
    except CorruptDataError:
        dataset.remove(STATUS_KEY)
        return
    except OSError as error:
        raise not_read(dataset.place(STATUS_KEY), error) from error

    def stays(text: str) -> bool:
        return not any(_is_named(name, text) for name in names)

    def kept(tasks: Sequence[Task]) -> tuple[Task, ...]:
        return tuple(task for task in tasks if not any(name in task.source for name in names))

    left = replace(
        found,
        running=kept(found.running),
        slowest=kept(found.slowest),
        largest=kept(found.largest),
        reason=found.reason if stays(found.reason) else "",
        # It names the first source of those that are not there.
        note=found.note if stays(found.note) else "",
    )
    if left != found and stored is not None:
        if left.state == "running":
            left = replace(left, state="ended", reason="it has died", running=(), units_running=0)
        dataset.replace(STATUS_KEY, _as_file(left), stored.version)


def _is_named(name: str, text: str) -> bool:
    """Whether a text has a name. The id `1` is in `'1'` and not in `100 sources`; the id `clip` is in `my_clip.mp4`."""
    if name not in text or not _SHORT.fullmatch(name):
        return name in text
    return re.search(rf"(?<![0-9A-Za-z]){name}(?![0-9A-Za-z])", text) is not None
