"""An id that a dataset does not have: the error names ids that look like it, and takes no time where it is caught."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from shortgop.errors import VideoNotFoundError
from shortgop.manifests import tables
from shortgop.manifests.near_ids import did_you_mean, near_ids
from shortgop.manifests.ragged import Ragged, from_texts
from synthetic import SyntheticVideo


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("kitchn/002.mp4", "kitchen/002.mp4"),
        ("kitchen/002", "kitchen/002.mp4"),
        ("/data/kitchen/002.mp4", "kitchen/002.mp4"),
        ("003.mp4", "garden/003.mp4"),
        ("nothing of it", None),
    ],
)
def test_ids_that_look_like_it_the_nearest_first(wanted: str, near: str | None) -> None:
    ids = sorted([*(f"kitchen/{number:03d}.mp4" for number in range(3)), "garden/003.mp4"])
    assert near_ids(from_texts(ids), wanted)[:1] == ([] if near is None else [near])


def test_those_below_a_folder_of_this_name_come_first_and_then_those_that_hold_it() -> None:
    holding = ["a/kitchen/1.mp4", "b/kitchen/2.mp4", "c/kitchen/3.mp4"]
    ids = from_texts(sorted([*holding, "0/a.mp4", "0/b.mp4", "kitchen/1"]))
    assert near_ids(ids, "0") == near_ids(ids, "0/") == ["0/a.mp4", "0/b.mp4"]
    assert near_ids(ids, "kitchen") == ["kitchen/1", *holding[:2]]


def test_of_many_ids_those_below_a_folder_are_found_behind_others_that_begin_like_it() -> None:
    """`a-0.mp4` is before `a/0.mp4`."""
    ids = from_texts(sorted([*(f"a-{each:05d}.mp4" for each in range(6000)), "a/1.mp4", "a/2.mp4"]))
    assert near_ids(ids, "a") == near_ids(ids, "a/") == ["a/1.mp4", "a/2.mp4"]


def test_a_number_is_no_id() -> None:
    """As a video's number it means another video after each job."""
    assert near_ids(from_texts(["a.mp4", "b.mp4"]), "0") == []


@pytest.mark.parametrize("wanted", ["caf\xe9.mp4", "cafe\u0301.mp4"])
def test_the_same_letters_in_another_form_of_unicode_are_found_and_told_apart(wanted: str) -> None:
    """As macOS writes names of files. The message asked whether one had meant what one had written."""
    other = "cafe\u0301.mp4" if wanted == "caf\xe9.mp4" else "caf\xe9.mp4"
    ids = from_texts(sorted([other, *(f"cafe{number:06d}.mp4" for number in range(20_000))], key=str.encode))
    assert near_ids(ids, wanted) == [other]
    said = f". Did you mean {other!r}, which is {other!a} and not {wanted!a}?"
    assert did_you_mean(wanted, [other]) == said
    assert did_you_mean("b.mp4", ["a.mp4", "c.mp4"]) == ". Did you mean 'a.mp4' or 'c.mp4'?"


@pytest.mark.parametrize("number", [0, 77_777, 199_999])
def test_of_many_ids_few_are_looked_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = from_texts(f"clip{each:06d}.mp4" for each in range(200_000))
    texts = Ragged.texts

    def few_texts(some: Ragged) -> list[str]:
        assert len(some) < 5000
        return texts(some)

    monkeypatch.setattr(Ragged, "texts", few_texts)
    assert near_ids(ids, f"clip{number:06d}.mpg")[0] == f"clip{number:06d}.mp4"
    assert near_ids(ids, "zzz") == near_ids(ids, "\udce9") == []


def test_the_error_names_them_when_it_is_shown_or_sent(
    constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset([constant_video.path], tmp_path / "dataset")
    dataset = shortgop.open(tmp_path / "dataset")
    searched: list[str] = []

    def noted(ids: Ragged, wanted: str) -> list[str]:
        searched.append(wanted)
        return near_ids(ids, wanted)

    monkeypatch.setattr(tables, "near_ids", noted)
    with pytest.raises(VideoNotFoundError) as caught:
        dataset["constnat.mp4"]
    assert "constnat.mp4" not in dataset
    assert not searched, "whoever catches the error does not wait for them"
    said = "the dataset has no video 'constnat.mp4'; `shortgop info` lists the ids. Did you mean 'constant.mp4'?"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value) == said
    assert searched == ["constnat.mp4"]
