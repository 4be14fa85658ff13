"""Objects in stores whose keys are no paths, as sources."""

from __future__ import annotations

import importlib.util
from fractions import Fraction
from pathlib import Path

import pytest

from shortgop.errors import UsageError
from shortgop.jobs.named_options import prepare_without_warning
from source_arguments import find_sources
from store_helpers import put, put_raw
from synthetic import constant_rate_pts, make_video

ODD_KEYS = ("x//y.mkv", "x/../z.mkv", "./w.mkv")


@pytest.mark.long
def test_a_video_whose_key_is_no_path_fails_alone(s3_url: str, tmp_path: Path) -> None:
    for name in ("a.mp4", "z.mp4"):
        video = make_video(tmp_path / name, pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30))
        put(f"{s3_url}/in/{name}", video.path)
    for odd in (*ODD_KEYS, "x//notes.txt", "x/../readme.md"):
        put_raw(f"{s3_url}/in/{odd}", b"content")
    report = prepare_without_warning(f"{s3_url}/in", tmp_path / "dataset", runner="inline")
    assert report.videos_added == 2
    assert sorted(failure.source for failure in report.failures) == sorted(f"{s3_url}/in/{odd}" for odd in ODD_KEYS)
    for failure in report.failures:
        assert "its key has an empty part, `.`, `..` or a control character; rename that object" in failure.reason
    again = prepare_without_warning(f"{s3_url}/in", tmp_path / "dataset", runner="inline")
    assert (again.videos_added, again.already_there) == (0, 2)


def test_a_key_that_is_no_path_and_no_video_is_passed_over(s3_url: str) -> None:
    put(f"{s3_url}/in/a.mp4", b"content")
    put_raw(f"{s3_url}/in/x//notes.txt", b"content")
    assert [source.id for source in find_sources([f"{s3_url}/in"])] == ["a.mp4"]


def test_without_boto3_a_key_that_is_no_path_is_named(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_raw(f"{s3_url}/in/x//y.mkv", b"content")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "boto3" else find_spec(name, *rest)
    )
    with pytest.raises(UsageError, match=r"pip install shortgop\[s3\].*rename that object") as caught:
        find_sources([f"{s3_url}/in"])
    assert repr(f"{s3_url.rpartition('/')[2]}/in/x//y.mkv") in str(caught.value)


def test_the_marker_of_a_folder_is_no_video(s3_url: str) -> None:
    put_raw(f"{s3_url}/in/dir.mp4/", b"")
    put(f"{s3_url}/in/dir.mp4/inside.mp4", b"content")
    put(f"{s3_url}/in/empty.mp4", b"")
    assert sorted(source.id for source in find_sources([f"{s3_url}/in"])) == ["dir.mp4/inside.mp4", "empty.mp4"]
    # The other listing, which takes over where a key is no path, sees markers as they are.
    put_raw(f"{s3_url}/in/x//notes.txt", b"content")
    assert sorted(source.id for source in find_sources([f"{s3_url}/in"])) == ["dir.mp4/inside.mp4", "empty.mp4"]
