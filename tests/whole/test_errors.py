"""The errors are part of the interface: their tree, what they carry, and how they read."""

import errno
import pickle
import re

import pytest

from shortgop import errors
from shortgop.errors import (
    CorruptDataError,
    DatasetError,
    FrameIndexError,
    ShortGopError,
    UsageError,
    VideoNotFoundError,
    not_read,
)

# Below each class its children, as the module's docstring draws them.
TREE = {
    "ShortGopError": [
        "UsageError",
        "ToolError",
        "SourceError",
        "DatasetError",
        "DatasetBusyError",
        "TooManyFailuresError",
        "OutputError",
        "VideoNotFoundError",
        "FrameIndexError",
        "DecodeError",
    ],
    "UsageError": ["WrongTypeError"],
    "SourceError": ["SourceNotFoundError", "NotAVideoError", "DamagedSourceError", "EncodeError"],
    "DatasetError": [
        "NotADatasetError",
        "FormatVersionError",
        "MissingDataError",
        "CorruptDataError",
        "UnreadableDataError",
    ],
}
CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ShortGopError)]


def subclasses(parent: type[ShortGopError]) -> list[str]:
    return [child.__name__ for child in CLASSES if child.__bases__[0] is parent]


def test_the_tree_is_as_it_was() -> None:
    assert {parent.__name__: children for parent in CLASSES if (children := subclasses(parent))} == TREE


def test_the_docstring_draws_the_tree() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^ +([ │├└─]*)(\w+Error)\b", errors.__doc__, re.MULTILINE)
    names_by_depth = {depth: [name for bars, name in drawn if len(bars) == depth] for depth in (0, 3, 7)}
    assert names_by_depth == {
        0: ["ShortGopError"],
        3: TREE["ShortGopError"],
        7: TREE["UsageError"] + TREE["SourceError"] + TREE["DatasetError"],
    }


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_the_way_from_a_worker(kind: type[ShortGopError]) -> None:
    error = kind("it broke", video="a.mp4", frame=3, segment=1, file="/ds/x.shard", byte_range=(10, 20))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


def test_an_error_says_where() -> None:
    error = CorruptDataError("it broke", video="a.mp4", frame=3, segment=1, file="/ds/x.shard", byte_range=(10, 20))
    assert str(error) == ("it broke [video 'a.mp4', frame 3, segment 1, file '/ds/x.shard', bytes 10 to 20]")
    assert str(CorruptDataError("it broke")) == "it broke"


def test_what_the_message_says_already_is_not_said_twice() -> None:
    assert str(CorruptDataError("/ds/x.shard is damaged", file="/ds/x.shard")) == "/ds/x.shard is damaged"
    assert str(FrameIndexError("video 'a' has no frame 3", video="a", frame=3)) == "video 'a' has no frame 3"


def test_a_number_is_not_taken_for_another_one_in_the_message() -> None:
    assert str(FrameIndexError("there are 30 frames", frame=3)) == "there are 30 frames [frame 3]"


def test_they_are_the_errors_python_code_expects() -> None:
    assert issubclass(FrameIndexError, IndexError)
    assert issubclass(VideoNotFoundError, KeyError)
    assert issubclass(UsageError, ValueError)
    assert not issubclass(DatasetError, ValueError)


def test_a_missing_video_reads_as_a_sentence() -> None:
    """A plain KeyError shows the repr of its message."""
    assert str(VideoNotFoundError("there is no video 'x'", video="x")) == "there is no video 'x'"


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT])
def test_what_a_store_does_not_answer_is_no_matter_of_disks(number: int) -> None:
    url = "s3://bucket/set/a"
    by_name = str(not_read(url, OSError(number, "the server answered 503", url)))
    assert by_name == f"{url} cannot be read: the server answered 503; check the network and the store and try again"
    # A table is named by its key.
    assert "the network and the store" in str(not_read("a", OSError(number, "the server answered 503", url)))
    assert "repair its disk" in str(not_read("/set/a", OSError(errno.EIO, "Input/output error", "/set/a")))
