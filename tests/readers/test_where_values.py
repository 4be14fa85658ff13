"""`Dataset.where` with values: one that no video has is told with those that there are, and conditions that no video
meets are no reason to say anything."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from datasets import make_dataset
from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from synthetic import constant_rate_pts, make_video
from training_videos import make_videos

CLASSES = ["archery", "bowling", "canoeing", "diving", "fencing", "golf", "judo", "karate", "luge", "rowing", "sailing"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> shortgop.Dataset:
    return shortgop.open(make_videos(tmp_path_factory.mktemp("where")))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> shortgop.Dataset:
    """Eleven classes with a video each, of which the last one has no score."""
    root = tmp_path_factory.mktemp("many")
    lines = []
    for number, name in enumerate(CLASSES):
        video = root / f"{name}.mp4"
        make_video(video, pts=constant_rate_pts(Fraction(10), 2), timebase=Fraction(1, 10))
        row = {"path": str(video), "class": name, "rank": number, "flags": [number], "indoors": number % 2 == 0}
        lines.append(json.dumps(row | ({"score": 2 * number} if name != CLASSES[-1] else {})))
    (root / "list.jsonl").write_text("\n".join(lines))
    make_dataset([root / "list.jsonl"], root / "dataset")
    return shortgop.open(root / "dataset")


@pytest.mark.parametrize(
    ("equals", "said"),
    [
        ({"kind": "dgo"}, "none has kind='dgo', the column has 'cat', 'dog'"),
        ({"label": 7}, "none has label=7, the column has 0, 1"),
        ({"label": 0.5}, "none has label=0.5, the column has 0, 1"),
        ({"weight": 3}, "none has weight=3, the column has 0.5, 1.5, 2.0"),
        ({"id": "a.mpg"}, "none has id='a.mpg', the column has 'a.mp4', 'b.mp4', 'c.mp4'"),
        ({"kind": "Dog", "label": 1}, "none has kind='Dog', the column has 'cat', 'dog'"),
    ],
)
def test_a_value_that_no_video_has_is_told_with_those_that_there_are(
    dataset: shortgop.Dataset, equals: Any, said: str
) -> None:
    """A misspelt split was an empty dataset, and evaluation on it took no time."""
    with pytest.warns(DatasetWarning, match=f"^{re.escape('where() chose no video: ' + said)}$") as warned:
        assert len(dataset.where(**equals)) == 0
    # It points to the line that asked.
    assert [warning.filename for warning in warned] == [__file__]


def test_a_list_of_values_is_told_how_to_ask_for_each_of_them(many: shortgop.Dataset) -> None:
    """It is one value, which is a list, as columns may have them."""
    assert many.where(flags=[3]).columns["rank"].tolist() == [3]
    said = re.escape("numpy.isin(columns['flags'], [3, 4])")
    with pytest.warns(DatasetWarning, match=said):
        assert len(many.where(flags=[3, 4])) == 0


def test_a_column_of_booleans_with_a_gap_says_how_it_is_asked(tmp_path: Path) -> None:
    dataset = make_videos(tmp_path / "videos")
    shortgop.annotate(dataset, {"a.mp4": {"good": True}, "b.mp4": {"good": False}})
    videos = shortgop.open(dataset)
    with pytest.raises(WrongTypeError, match=r"None for some, as a column of booleans is .* give where\(name=True\)"):
        videos.where(lambda columns: columns["good"])
    assert list(videos.where(good=True).ids) == list(videos.where(lambda c: c["good"] == True).ids) == ["a.mp4"]  # noqa: E712


@pytest.mark.parametrize(
    ("equals", "said"),
    [
        ({"class": "bolwing"}, "the column has others, such as 'bowling'"),
        ({"class": "zzz"}, "the column has others, such as 'archery', 'bowling', 'canoeing'"),
        ({"rank": 11}, "the column has 11 values from 0 to 10"),
        ({"score": 1}, "the column has 10 values from 0 to 18"),
        ({"flags": [99]}, "the column has others, such as [0], [10], [1]"),
    ],
)
def test_of_many_values_it_names_some(many: shortgop.Dataset, equals: Any, said: str) -> None:
    with pytest.warns(DatasetWarning, match=re.escape(said)):
        assert len(many.where(**equals)) == 0


def test_each_of_several_such_values_is_told(dataset: shortgop.Dataset) -> None:
    with pytest.warns(DatasetWarning) as warned:
        dataset.where(kind="dgo", label=7)
    assert ["kind='dgo'" in str(warned[0].message), "label=7" in str(warned[1].message)] == [True, True]


def test_conditions_that_no_video_meets_together_say_nothing(dataset: shortgop.Dataset) -> None:
    """Warnings are errors here."""
    assert len(dataset.where(kind="cat", label=1)) == 0
    # In a loop over splits and classes, say: what one part of the snapshot lacks, another has.
    dogs = dataset.where(kind="dog")
    assert len(dogs.where(label=0)) == len(dogs.where(kind="cat")) == len(dogs.where(id="a.mp4")) == 0
    assert len(dogs.where(kind="cat").where(label=0)) == 0
    # None asks for videos without a value, and a function or a mask says just which videos it wants.
    assert len(dataset.where(label=None)) == len(dataset.where(lambda columns: columns["label"] == 7)) == 0
    assert len(dataset.where([False] * 3)) == len(dataset.where([False] * 3, label=1)) == 0


def test_a_misspelt_value_among_the_chosen_videos_is_told_too(dataset: shortgop.Dataset) -> None:
    with pytest.warns(DatasetWarning, match="none has kind='cta', the column has 'cat', 'dog'"):
        dataset.where(kind="dog").where(kind="cta")


def test_a_misspelt_column_is_an_error(dataset: shortgop.Dataset) -> None:
    with pytest.raises(UsageError, match="no column 'splt'; it has id, source"):
        dataset.where(splt="train")
