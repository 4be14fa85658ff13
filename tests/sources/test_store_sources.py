"""Sources in stores and on web servers: the frames in the dataset are those of the files; errors name URLs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import shortgop
from datasets import current_manifest
from flaky_proxy import Faults, FlakyProxy
from object_sources import look, make, numbers, prepare, run
from shortgop.errors import SourceError, SourceNotFoundError, UsageError
from shortgop.jobs.cluster.shared_files import check_sources
from shortgop.jobs.finding.addresses import parse
from shortgop.jobs.finding.source import Source
from shortgop.jobs.finding.sources import found_in
from shortgop.jobs.finding.store_files import told
from shortgop.jobs.units_of_work.units import Unit
from source_arguments import find_sources
from store_helpers import put
from web_server import web_server


def test_a_folder_of_a_bucket_is_prepared_like_a_folder(s3_url: str, tmp_path: Path) -> None:
    # An MP4 has its index at the end, unless it is asked to have it in front.
    names = ["a.mp4", "x/front.mp4", "x/b.mkv", "x/y/c.ts"]
    for number, name in enumerate(names):
        options: Any = {"container_options": {"movflags": "faststart"}} if "front" in name else {}
        put(f"{s3_url}/in/{name}", make(tmp_path / name, first_number=1000 * number, **options))
    for name in ("notes.txt", ".hidden/d.mp4", "x/.e.mp4"):
        put(f"{s3_url}/in/{name}", b"nothing")
    report = prepare(f"{s3_url}/in/", tmp_path / "dataset")
    assert (report.videos_added, report.failures) == (4, ())
    shown = {name: list(range(1000 * number, 1000 * number + 40)) for number, name in enumerate(names)}
    assert numbers(tmp_path / "dataset") == shown
    assert prepare(f"{s3_url}/in", tmp_path / "dataset").already_there == 4
    paths = current_manifest(tmp_path / "dataset").videos.path.texts()
    assert sorted(paths) == sorted(f"{s3_url}/in/{name}" for name in names)


def test_no_copy_of_a_source_is_left(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    put(f"{s3_url}/a.mp4", make(tmp_path / "a.mp4"))
    put(f"{s3_url}/broken.mp4", b"no video")
    report = prepare(s3_url, tmp_path / "dataset")
    assert (report.videos_added, len(report.failures)) == (1, 1)
    assert [path for path in (tmp_path / "temporary").rglob("*") if path.is_file()] == []


def test_ids_are_paths_below_the_folders_that_the_dataset_remembers(s3_url: str) -> None:
    for name in ("A/x/v.mp4", "A/w.mp4", "B/u.mp4"):
        put(f"{s3_url}/{name}", b"content")

    def ids(*arguments: str, roots: list[str] | None = None) -> list[str]:
        return [source.id for source in find_sources([f"{s3_url}/{each}" for each in arguments], roots)]

    assert ids("A") == ids("A/") == ["w.mp4", "x/v.mp4"]
    assert ids("A/x/v.mp4") == ["v.mp4"]
    assert ids("A", "B") == ["u.mp4", "w.mp4", "x/v.mp4"]
    assert ids("A/x/v.mp4", roots=[f"{s3_url}/A"]) == ["x/v.mp4"]
    assert ids("A", "B/u.mp4", roots=[s3_url]) == ["A/w.mp4", "A/x/v.mp4", "B/u.mp4"]


def test_an_id_root_may_be_a_url(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/A/x/v.mp4", make(tmp_path / "v.mp4"))
    prepare(f"{s3_url}/A/x", tmp_path / "dataset", id_root=s3_url)
    assert list(numbers(tmp_path / "dataset")) == ["A/x/v.mp4"]
    assert prepare(f"{s3_url}/A/x/v.mp4", tmp_path / "dataset").already_there == 1
    with pytest.raises(UsageError, match="does not hold"):
        prepare(f"{s3_url}/A", tmp_path / "dataset", id_root=f"{s3_url}/B")


def test_two_objects_with_the_same_id_are_named(s3_url: str) -> None:
    for name in ("A/v.mp4", "B/v.mp4"):
        put(f"{s3_url}/{name}", b"content")
    with pytest.raises(UsageError, match=f"--id-root {s3_url}, a folder that both lie in"):
        find_sources([f"{s3_url}/A", f"{s3_url}/B"])


def test_lists_name_urls_and_may_lie_in_a_store(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/videos/a.mp4", make(tmp_path / "a.mp4"))
    put(f"{s3_url}/videos/b.mp4", make(tmp_path / "b.mp4", first_number=500))
    here = tmp_path / "list.csv"
    here.write_text(f"path,id,label\n{s3_url}/videos/a.mp4,,1\n{s3_url}/videos/b.mp4,seven,2\n")
    prepare(here, tmp_path / "one")
    assert {video.id: video.attributes for video in shortgop.open(tmp_path / "one")} == {
        f"{s3_url}/videos/a.mp4": {"label": 1},
        "seven": {"label": 2},
    }
    put(f"{s3_url}/list.csv", b"path,label\nvideos/a.mp4,3\n./videos/b.mp4,4\n")
    prepare(f"{s3_url}/list.csv", tmp_path / "two")
    assert {video.id: video.attributes["label"] for video in shortgop.open(tmp_path / "two")} == {
        "videos/a.mp4": 3,
        "videos/b.mp4": 4,
    }
    assert numbers(tmp_path / "two")["videos/b.mp4"] == list(range(500, 540))


def test_a_list_in_a_store_is_named_by_its_url_in_errors(s3_url: str) -> None:
    put(f"{s3_url}/list.csv", b"path,label\na.mp4\n")
    with pytest.raises(UsageError, match=f"line 2 of '{s3_url}/list.csv'"):
        find_sources([f"{s3_url}/list.csv"])
    # Types were told of its copy, whose name is no name that anybody gave.
    put(f"{s3_url}/list.csv", b"path,label\na.mp4,1\n")
    typed: dict[str, Any] = {}
    find_sources([f"{s3_url}/list.csv"], on_types=typed.__setitem__)
    assert typed == {f"{s3_url}/list.csv": {"label": "integer"}}


def test_a_wrong_line_of_a_list_in_a_store_comes_after_those_in_front_of_it(s3_url: str, tmp_path: Path) -> None:
    """A job may have encoded some of those by then. No copy of the list is left."""
    listed = f"{s3_url}/list.jsonl"
    put(listed, b'{"path": "a.mp4"}\n{"path": "b.mp4"}\n{"id": "c"}\n')
    found = found_in([listed])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", folder)
        assert [next(found).place, next(found).place] == [f"line 1 of '{listed}'", f"line 2 of '{listed}'"]
        with pytest.raises(UsageError, match=f"line 3 of '{listed}' has no `path`") as caught:
            next(found)
        assert caught.value.file == listed
        assert files_below(folder) == []
        # Nor is one if the job ends before it has read the list.
        found = found_in([listed])
        next(found)
        assert len(files_below(folder)) == 1
        del found
        assert files_below(folder) == []


def files_below(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


LONG_LIST = """
import sys
from process_memory import peak_bytes
from shortgop.jobs.finding.sources import found_in

short, long = sys.argv[1:]
assert sum(1 for _ in found_in([short])) == 1
before = peak_bytes()
print(sum(1 for _ in found_in([long])), peak_bytes() - before)
"""


@pytest.mark.long
def test_a_list_in_a_store_is_not_in_memory(s3_url: str) -> None:
    """Of 100 MB that it has, as much as is fetched at once."""
    line = b'{"path": "a.mp4", "label": "' + b"x" * 5_000 + b'"}\n'
    put(f"{s3_url}/short.jsonl", line)
    put(f"{s3_url}/long.jsonl", line * 20_000)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LONG_LIST, f"{s3_url}/short.jsonl", f"{s3_url}/long.jsonl"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    num_found, num_bytes = map(int, done.stdout.split())
    assert num_found == 20_000
    assert num_bytes < 80_000_000


def test_stretches_of_an_object_are_videos(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/a.mkv", make(tmp_path / "a.mkv", num_frames=120, gop=20))
    (tmp_path / "list.csv").write_text(f"path,start,end\n{s3_url}/a.mkv,1,2\n{s3_url}/a.mkv,3,\n{s3_url}/a.mkv,9,10\n")
    report = prepare(tmp_path / "list.csv", tmp_path / "dataset", cuts="start,end")
    assert numbers(tmp_path / "dataset") == {
        f"{s3_url}/a.mkv@1-2": list(range(30, 60)),
        f"{s3_url}/a.mkv@3-": list(range(90, 120)),
    }
    (failure,) = report.failures
    assert failure.source == f"{s3_url}/a.mkv"
    assert "line 4" in failure.reason
    assert "/source.mkv" not in failure.reason


def test_looking_at_objects_reads_none_of_their_content(proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path) -> None:
    for name in "abc":
        put(f"{proxied_url}/{name}.mp4", make(tmp_path / f"{name}.mp4"))
    prepare(proxied_url, tmp_path / "dataset")
    s3_proxy.forget()
    assert prepare(f"{proxied_url}/", tmp_path / "dataset").already_there == 3
    asked, listing = s3_proxy.requests()
    assert asked.key.endswith("meta/info.json"), "which would make it a LeRobot dataset"
    assert "list-type" in listing.query


def test_connections_that_are_cut_do_not_show(proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path) -> None:
    for number, name in enumerate(["a.mp4", "b.mkv", "c.ts"]):
        put(f"{proxied_url}/{name}", make(tmp_path / name, first_number=100 * number))
    s3_proxy.faults(Faults(seed=1, cut=0.3, failed=0.1))
    report = prepare(proxied_url, tmp_path / "dataset")
    assert report.failures == ()
    assert {video[0] for video in numbers(tmp_path / "dataset").values()} == {0, 100, 200}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing.mp4", "nothing.mp4' does not exist|nothing.mp4 does not exist"),
        ("nothing/", "^nothing lies at or below"),
        ("nothing", "^nothing lies at or below"),
        ("videos.tar", "is a tar"),
        ("*.mp4", "globs are not expanded in stores"),
    ],
)
def test_what_is_not_there_is_wrong_usage(s3_url: str, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        find_sources([f"{s3_url}/{name}"])
    assert s3_url in str(caught.value)


def test_a_bucket_that_does_not_exist_is_named(s3_url: str) -> None:
    with pytest.raises(UsageError, match=r"s3://no-such-bucket-here.*(exist|no videos)"):
        find_sources(["s3://no-such-bucket-here/in/"])


def test_a_playlist_in_a_store_is_refused(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/a.m3u8", b"#EXTM3U\n")
    put(f"{s3_url}/b.mp4", make(tmp_path / "b.mp4"))
    (failure,) = prepare([f"{s3_url}/a.m3u8", f"{s3_url}/b.mp4"], tmp_path / "dataset").failures
    assert f"{s3_url}/a.m3u8 is called like a script or a playlist" in failure.reason


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (FileNotFoundError(2, "there is no such object"), SourceNotFoundError, "does not exist; put it there"),
        (FileNotFoundError(2, "there is no such bucket"), SourceNotFoundError, "no such bucket"),
        (PermissionError(13, "the server answered 403"), SourceError, "403; give credentials"),
        (TimeoutError(110, "no answer in time"), SourceError, "no answer in time; check the network"),
        (OSError(5, "no connection to the server"), SourceError, "no connection to the server; check the network"),
        (OSError(28, "No space left on device"), SourceError, "does not fit into .*TMPDIR"),
        (
            OSError(95, "the server has no range requests"),
            SourceError,
            "requests; download it, or give a server",
        ),
        (OSError(5, "bad answer for ?sig=topsecret"), SourceError, "bad answer"),
    ],
)
def test_errors_of_stores_name_the_url_and_the_remedy(error: OSError, kind: type[SourceError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught, told(parse("https://host/a.mp4?sig=topsecret")):
        raise error
    assert "https://host/a.mp4" in str(caught.value)
    assert "topsecret" not in str(caught.value)


def test_a_presigned_url_is_read_and_its_signature_is_stored_nowhere(tmp_path: Path) -> None:
    make(tmp_path / "web" / "my a.mp4", first_number=70)
    make(tmp_path / "web" / "b.mp4").write_bytes(b"no video")
    out = tmp_path / "dataset"
    with web_server(tmp_path / "web", "sig=topsecret") as server:
        url = f"{server.root}/my%20a.mp4"
        report = prepare([f"{url}?sig=topsecret", f"{server.root}/b.mp4?sig=topsecret"], out)
        assert report.videos_added == 1
        assert numbers(out) == {"my%20a.mp4": list(range(70, 110))}
        assert current_manifest(out).videos.path.texts() == [url]
        (failure,) = report.failures
        assert failure.path == failure.source == f"{server.root}/b.mp4"
        again = prepare(f"{url}?sig=topsecret", out)
        assert again.already_there == 1
        with pytest.raises(UsageError, match="credentials") as caught:
            prepare(f"{url}?sig=wrongsecret", out)
        assert "secret" not in str(caught.value)
    assert "topsecret" not in repr(report)
    for folder, _, files in os.walk(out):
        for name in files:
            assert b"topsecret" not in (Path(folder) / name).read_bytes()


@pytest.mark.parametrize(("name", "cuts"), [("list.txt", None), ("a.mp4", "start,end")])
def test_a_message_about_a_list_on_the_web_is_without_its_signature(
    tmp_path: Path, name: str, cuts: str | None
) -> None:
    (tmp_path / "list.txt").write_text("a.mp4\n.\n")
    with web_server(tmp_path, "sig=topsecret") as server:
        with pytest.raises(UsageError, match="line 2 of .* names? files|is no list") as caught:
            prepare(f"{server.root}/{name}?sig=topsecret", tmp_path / "dataset", cuts=cuts)
        assert caught.value.file == f"{server.root}/{name}"
    assert "topsecret" not in str(caught.value)


def test_a_web_server_without_etags_will_do(tmp_path: Path) -> None:
    make(tmp_path / "web" / "a.mp4", first_number=70)
    with web_server(tmp_path / "web", "", etags=False) as server:
        prepare(f"{server.root}/a.mp4", tmp_path / "dataset")
        assert numbers(tmp_path / "dataset") == {"a.mp4": list(range(70, 110))}
        assert prepare(f"{server.root}/a.mp4", tmp_path / "dataset").already_there == 1
        (item,) = look(f"{server.root}/a.mp4")
        make(tmp_path / "web" / "a.mp4", num_frames=50)
        (failure,) = run([item], tmp_path / "dataset").failures
    assert (
        failure.reason == f"{server.root}/a.mp4 was replaced after the job had looked at it; run the same command again"
    )


def test_a_list_of_labels_may_follow_a_folder(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/in/a.mp4", make(tmp_path / "a.mp4"))
    prepare(f"{s3_url}/in/", tmp_path / "dataset")
    (tmp_path / "list.csv").write_text(f"path,label\n{s3_url}/in/a.mp4,5\n")
    assert prepare(tmp_path / "list.csv", tmp_path / "dataset").relabelled == 1
    assert [(video.id, video.attributes) for video in shortgop.open(tmp_path / "dataset")] == [("a.mp4", {"label": 5})]


def test_a_node_that_cannot_reach_the_store_is_found_before_its_sources_fail(
    proxied_url: str, s3_proxy: FlakyProxy
) -> None:
    put(f"{proxied_url}/a.mp4", b"content")
    unit = Unit("0" * 16, tuple(look(proxied_url)))
    check_sources(unit)
    s3_proxy.faults(Faults(statuses=100, status=403))
    with pytest.raises(SourceNotFoundError, match="all nodes of a cluster need the network and the credentials"):
        check_sources(unit)


def test_sources_travel_to_workers_with_what_they_need(s3_url: str) -> None:
    import pickle

    put(f"{s3_url}/a.mp4", b"content")
    (item,) = look(s3_url)
    other: Source = pickle.loads(pickle.dumps(item)).source
    assert other == item.source
    assert other.in_store is not None
    assert other.in_store.stored is not None
