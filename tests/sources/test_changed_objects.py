"""Sources in stores that change or vanish, between two jobs or within one."""

from __future__ import annotations

from pathlib import Path

from datasets import current_manifest
from object_sources import look, make, numbers, prepare, run
from store_helpers import put, remove


def test_an_object_that_changed_is_reported_or_replaced(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/a.mp4", make(tmp_path / "a.mp4"))
    prepare(s3_url, tmp_path / "dataset")
    put(f"{s3_url}/a.mp4", make(tmp_path / "b.mp4", first_number=300))
    report = prepare(s3_url, tmp_path / "dataset")
    assert report.outdated == ("a.mp4",)
    assert f"{s3_url}/a.mp4 has changed" in report.failures[0].reason
    assert numbers(tmp_path / "dataset")["a.mp4"][0] == 0
    assert prepare(s3_url, tmp_path / "dataset", changed="replace").replaced == ("a.mp4",)
    assert numbers(tmp_path / "dataset")["a.mp4"] == list(range(300, 340))


def test_an_object_that_is_replaced_before_it_is_encoded_fails_alone(s3_url: str, tmp_path: Path) -> None:
    for name in "ab":
        put(f"{s3_url}/{name}.mp4", make(tmp_path / f"{name}.mp4"))
    out = tmp_path / "dataset"
    prepare(make(tmp_path / "other.mp4"), out)
    items = look(s3_url)
    put(f"{s3_url}/a.mp4", make(tmp_path / "c.mp4", first_number=100))
    result = run(items, out)
    assert [failure.reason for failure in result.failures] == [
        f"{s3_url}/a.mp4 was replaced after the job had looked at it; run the same command again"
    ]
    assert result.videos == 1


def test_an_object_that_vanishes_before_it_is_encoded_fails_alone(s3_url: str, tmp_path: Path) -> None:
    for name in "ab":
        put(f"{s3_url}/{name}.mp4", make(tmp_path / f"{name}.mp4"))
    out = tmp_path / "dataset"
    prepare(make(tmp_path / "other.mp4"), out)
    items = look(s3_url)
    remove(f"{s3_url}/b.mp4")
    result = run(items, out)
    assert [failure.reason for failure in result.failures] == [
        f"{s3_url}/b.mp4 does not exist; put it there, or give the URL where it is"
    ]
    assert result.videos == 1


def test_an_object_that_arrives_after_the_look_at_it_is_what_the_next_job_sees(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/a.mp4", make(tmp_path / "a.mp4"))
    (tmp_path / "list.txt").write_text(f"{s3_url}/a.mp4\n{s3_url}/b.mp4\n")
    out = tmp_path / "dataset"
    prepare(make(tmp_path / "other.mp4"), out)
    items = look(str(tmp_path / "list.txt"))
    put(f"{s3_url}/b.mp4", make(tmp_path / "b.mp4"))
    assert run(items, out).videos == 2
    report = prepare(tmp_path / "list.txt", out)
    assert (report.already_there, report.failures) == (2, ())


def test_a_failure_is_withdrawn_when_its_object_is_gone(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/in/a.mp4", make(tmp_path / "a.mp4"))
    put(f"{s3_url}/in/broken.mp4", b"no video")
    put(f"{s3_url}/other.mp4", b"no video")
    out = tmp_path / "dataset"
    prepare([f"{s3_url}/in", f"{s3_url}/other.mp4"], out)
    assert len(list_failures(out)) == 2
    remove(f"{s3_url}/in/broken.mp4")
    prepare(f"{s3_url}/in", out)
    assert list_failures(out) == [f"{s3_url}/other.mp4"], "nothing is known of other folders"


def list_failures(dataset: Path) -> list[str]:
    table = current_manifest(dataset).failures
    pairs = zip(table.path.texts(), table.reason.texts(), strict=True)
    return [path for path, reason in pairs if reason]
