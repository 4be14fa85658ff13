"""WebDataset tars with videos, written by the library webdataset."""

from __future__ import annotations

import io
import json
import os
import shlex
import tarfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import webdataset

import shortgop
from file_permissions import modes_count
from labelled_videos import run
from shortgop.errors import UsageError
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.finding.source import Source
from shortgop.jobs.finding.source_parts import identity_of_part
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import make_video, read_number


def video(folder: Path, first_number: int, count: int = 20, suffix: str = ".mp4") -> bytes:
    path = folder / f"made{suffix}"
    timebase = Fraction(1, 1000 if suffix == ".webm" else 30)
    codec = "libvpx-vp9" if suffix == ".webm" else "libx264"
    pts = [round(frame / 30 / timebase) for frame in range(count)]
    made = make_video(path, pts=pts, timebase=timebase, codec=codec, first_number=first_number)
    data = made.path.read_bytes()
    path.unlink()
    return data


def write_tar(path: Path, *samples: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream, webdataset.TarWriter(stream) as writer:
        for sample in samples:
            writer.write(dict(sample))
    return path


def prepared(*sources: Path | str, out: Path) -> Report:
    return prepare([str(source) for source in sources], DiskStorage(out), Profile(), where=Where("inline"))


def first_numbers(dataset: Path) -> dict[str, int]:
    return {each.id: read_number(each[0]) for each in shortgop.open(dataset)}


def test_a_sample_that_failed_is_not_listed_once_its_tar_has_it_no_more(tmp_path: Path) -> None:
    tars = [tmp_path / "tars" / f"{name}.tar" for name in "ab"]
    good = {"__key__": "good", "mp4": video(tmp_path, 0)}
    write_tar(tars[0], good, {"__key__": "bad", "mp4": b"no video"})
    write_tar(tars[1], {"__key__": "worse", "mp4": b"no video"})
    prepared(*tars, out=tmp_path / "out")
    assert [each.id for each in shortgop.open(tmp_path / "out").failures] == ["bad", "worse"]
    write_tar(tars[0], good)
    prepared(tars[0], out=tmp_path / "out")
    # Nothing was seen of the other tar.
    assert [each.id for each in shortgop.open(tmp_path / "out").failures] == ["worse"]


def test_each_sample_is_a_video_with_its_columns(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "shard-000000.tar",
        {"__key__": "000000", "mp4": video(tmp_path, 0), "json": {"score": 0.5, "tags": ["a"]}, "cls": 3, "txt": "één"},
        {"__key__": "sub/000001", "webm": video(tmp_path, 100, suffix=".webm"), "meta.json": [1], "cls": 4},
        {"__key__": "000002", "txt": "no video"},
    )
    said: list[str] = []
    importing = Importing(tell=said.append)
    tar = tmp_path / "shard-000000.tar"
    report = prepare([str(tar)], DiskStorage(tmp_path / "out"), Profile(), where=Where("inline"), importing=importing)
    assert (report.videos_added, report.failures) == (2, ())
    dataset = shortgop.open(tmp_path / "out")
    assert {each.id: each.attributes for each in dataset} == {
        "000000": {"score": 0.5, "tags": ["a"], "cls": 3, "txt": "één"},
        "sub/000001": {"meta": [1], "cls": 4},
    }
    assert [read_number(frame) for frame in dataset["000000"]] == list(range(20))
    assert [read_number(frame) for frame in dataset["sub/000001"]] == list(range(100, 120))
    assert said == [f"{tar}: a WebDataset tar of 2 videos"]
    # Nothing is left of what was copied out of the tar.
    assert list((tmp_path / "out").glob(".tmp/*")) == []


def test_columns_are_values_that_a_manifest_holds(tmp_path: Path) -> None:
    """JSON of Python has what is no number, and numbers that no float is; these ended the job with a traceback."""
    # Those of the dataset's own names are left out.
    written = b'{"id": "x", "path": "y", "score": 1e999, "rate": NaN, "text": "\\ud800", "other": [-1e999, {"a": 1}]}'
    tar = write_tar(tmp_path / "a.tar", {"__key__": "0", "mp4": b"", "json": written, "left.json": b"[1e999]", "id": 7})
    (source,) = find_sources([str(tar)])
    assert json.loads(source.attributes) == {
        "score": None, "rate": None, "text": "\\ud800", "other": [None, {"a": 1}], "left": [None],
    }  # fmt: skip


def test_several_videos_of_a_sample_have_ids_of_their_own(tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "a.tar", {"__key__": "7", "left.mp4": video(tmp_path, 0), "right.mp4": video(tmp_path, 50), "cls": 1}
    )
    prepared(tar, out=tmp_path / "out")
    assert first_numbers(tmp_path / "out") == {"7.left": 0, "7.right": 50}


@pytest.mark.parametrize("given", ["shards", "shards/*.tar"])
def test_folders_and_globs_of_tars(given: str, tmp_path: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / f"shards/{number}.tar", {"__key__": f"{number}", "mp4": video(tmp_path, 100 * number)})
    prepared(f"{tmp_path}/{given}", out=tmp_path / "out")
    assert first_numbers(tmp_path / "out") == {"0": 0, "1": 100}


def test_in_a_folder_with_videos_tars_are_passed_over(tmp_path: Path) -> None:
    write_tar(tmp_path / "both/a.tar", {"__key__": "0", "mp4": video(tmp_path, 0)})
    (tmp_path / "both/b.mp4").write_bytes(video(tmp_path, 50))
    assert [source.id for source in find_sources([str(tmp_path / "both")])] == ["b.mp4"]


def test_a_job_tells_of_tars_beside_videos_with_the_command_that_takes_them(tmp_path: Path) -> None:
    folder, out = tmp_path / "my videos", tmp_path / "out"
    for name in ("a.tar", "b.tar"):
        write_tar(folder / name, {"__key__": name[0], "mp4": video(tmp_path, 0)})
    (folder / "b.mp4").write_bytes(video(tmp_path, 50))

    def told(*arguments: Path | str) -> list[str]:
        said = run("prep", *arguments, "--out", out, "--runner", "inline").stderr.splitlines()
        return [line for line in said if "not read" in line]

    (line,) = told(folder)
    assert line.startswith(f"{folder}/a.tar: not read, like 1 other tar, as")
    assert told(f"{folder}/*") == told(folder, f"{folder}/*") == [line]
    # One that was read is not left out, and the other one is.
    assert [line.partition(", as")[0] for line in told(folder, folder / "a.tar")] == [f"{folder}/b.tar: not read"]
    command = shlex.split(line.split("`")[1].replace("DATASET", str(out)))
    assert "1 of 2 sources already in the dataset" in run(*command[1:], "--runner", "inline").stdout
    # Their samples are there now.
    assert told(folder) == []
    assert shortgop.open(out).ids == ["a", "b", "b.mp4"]


def test_a_folder_of_tars_is_read_and_says_nothing_of_them(tmp_path: Path) -> None:
    write_tar(tmp_path / "shards/0.tar", {"__key__": "0", "mp4": b"data"})
    said: list[str] = []
    find_sources([str(tmp_path / "shards")], importing=Importing(tell=said.append))
    assert said == [f"{tmp_path}/shards/0.tar: a WebDataset tar of 1 video"]


def test_of_two_files_that_give_a_column_different_values_the_later_one_counts_and_the_first_are_named(
    tmp_path: Path,
) -> None:
    for tar in ("a", "b"):
        write_tar(
            tmp_path / f"{tar}.tar",
            {"__key__": f"{tar}0", "jpg": b"data", "json": b'{"txt": "Not of a video."}', "txt": "A cat."},
            {"__key__": f"{tar}1", "mp4": b"data", "json": b'{"txt": "A dog."}', "txt": "A cat."},
        )
    said: list[str] = []
    sources = find_sources([f"{tmp_path}/*.tar"], importing=Importing(tell=said.append))
    assert [json.loads(source.attributes) for source in sources] == [{"txt": "A cat."}] * 2
    assert said == [
        f"{tmp_path}/a.tar: 'a1.json' and 'a1.txt' give the column 'txt' different values, as in 1 other sample of "
        "tars; the later file counts"
    ]


@pytest.mark.parametrize(
    ("files", "columns"),
    [
        ({"json": b'{"txt": " A cat.\\n"}', "txt": "A cat."}, {"txt": "A cat."}),
        ({"json": b'{"cls": 3.0}', "cls": 3}, {"cls": 3}),
        ({"json": b'{"box": {"x": 1, "y": 2}}', "box.json": b'{"y": 2, "x": 1}'}, {"box": {"x": 1, "y": 2}}),
    ],
)
def test_of_two_files_that_give_a_column_one_value_nothing_is_said(
    tmp_path: Path, files: dict[str, object], columns: dict[str, object]
) -> None:
    tar = write_tar(tmp_path / "0.tar", {"__key__": "0", "mp4": b"data", **files})
    said: list[str] = []
    (source,) = find_sources([str(tar)], importing=Importing(tell=said.append))
    assert json.loads(source.attributes) == columns
    assert said == [f"{tar}: a WebDataset tar of 1 video"]


def test_a_file_that_was_put_at_the_end_of_a_tar_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "0.tar", {"__key__": "0", "mp4": b"data", "txt": "A dog."})
    (tmp_path / "0.txt").write_text("A cat.")
    with tarfile.open(tar, "a") as archive:
        archive.add(tmp_path / "0.txt", "0.txt")
    said: list[str] = []
    (source,) = find_sources([str(tar)], importing=Importing(tell=said.append))
    assert json.loads(source.attributes) == {"txt": "A cat."}
    assert said == [f"{tar}: a WebDataset tar of 1 video"]


def test_columns_that_are_not_next_to_their_video_are_told_once_with_what_mends_the_tar(tmp_path: Path) -> None:
    """As `tar` without --sort=name writes them. Columns were lost without a word."""
    (tmp_path / "c.txt").write_text("A picture's.")
    for number, name in enumerate("ab"):
        (tmp_path / f"{name}.mp4").write_bytes(video(tmp_path, 50 * number))
        (tmp_path / f"{name}.txt").write_text(f"The text of {name}.")

    def told(*names: str) -> list[str]:
        with tarfile.open(tmp_path / "0.tar", "w") as archive:
            for name in names:
                archive.add(tmp_path / name, name)
        done = run("prep", tmp_path / "0.tar", "--out", tmp_path / "out", "--runner", "inline")
        return [line for line in done.stderr.splitlines() if "next to" in line]

    assert told("a.mp4", "b.mp4", "c.txt", "b.txt", "a.txt") == [
        f"{tmp_path}/0.tar: 'b.txt' is not next to the video of its sample, which gets no column of it, as in 1 other "
        "sample of tars; write the tar again with the files of each sample one after the other, as `tar --sort=name` "
        "does"
    ]
    assert told("a.mp4", "a.txt", "b.mp4", "b.txt", "c.txt") == []
    assert {each.id: each.attributes for each in shortgop.open(tmp_path / "out")} == {
        name: {"txt": f"The text of {name}."} for name in "ab"
    }


def test_a_key_in_two_tars_names_both(tmp_path: Path) -> None:
    tars = [write_tar(tmp_path / f"{name}.tar", {"__key__": "0", "mp4": b"data"}) for name in "ab"]
    with pytest.raises(UsageError, match=r"a\.tar/0\.mp4' and '.*b\.tar/0\.mp4' are two samples with the same key '0'"):
        find_sources([str(tar) for tar in tars])


def test_a_member_is_known_again_by_its_contents_wherever_it_lies(tmp_path: Path) -> None:
    data = video(tmp_path, 0)
    prepared(write_tar(tmp_path / "a.tar", {"__key__": "0", "mp4": data}), out=tmp_path / "out")
    (tmp_path / "a.tar").unlink()
    more = [{"__key__": "00", "mp4": video(tmp_path, 50)}, {"__key__": "0", "mp4": data}]
    report = prepared(write_tar(tmp_path / "b.tar", *more), out=tmp_path / "out")
    assert (report.already_there, report.videos_added, report.failures) == (1, 1, ())
    (tmp_path / "0.mp4").write_bytes(data)
    member = next(source for source in find_sources([str(tmp_path / "b.tar")]) if source.id == "0")
    assert identity_of_part(member.path, member.part, identity_of) == identity_of(str(tmp_path / "0.mp4"))


def test_a_bad_member_fails_alone_under_its_own_name(tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "a.tar",
        {"__key__": "0", "mp4": b"no video"}, {"__key__": "1", "mp4": video(tmp_path, 10)},
    )  # fmt: skip
    report = prepared(tar, out=tmp_path / "out")
    assert report.videos_added == 1
    (failure,) = report.failures
    assert failure.reason.startswith(f"{tar}/0.mp4 does not open as a video")


def test_tars_that_cannot_be_read_or_hold_no_videos_say_so(tmp_path: Path) -> None:
    (tmp_path / "not.tar").write_bytes(b"x" * 2000)
    with pytest.raises(UsageError, match="cannot read '.*not.tar' as a tar"):
        find_sources([str(tmp_path / "not.tar")])
    write_tar(tmp_path / "texts.tar", {"__key__": "0", "txt": "a"})
    with pytest.raises(UsageError, match=r"texts\.tar' holds no videos"):
        find_sources([str(tmp_path / "texts.tar")])
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        entry = tarfile.TarInfo("0.json")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"{ab"))
    with pytest.raises(UsageError, match=r"'0\.json' in the tar .* is no json") as caught:
        find_sources([str(tmp_path / "bad.tar")])
    assert caught.value.file == str(tmp_path / "bad.tar")


def test_a_tar_that_may_not_be_read_and_a_pipe_say_so(tmp_path: Path) -> None:
    """Nothing is wrong with the first one's bytes, and nothing is read of the other: nobody might ever write to it."""
    tar = write_tar(tmp_path / "a.tar", {"__key__": "0", "txt": "a"})
    tar.chmod(0)
    with modes_count(), pytest.raises(UsageError, match=r"a\.tar' cannot be read: permission denied; change its perm"):
        find_sources([str(tar)])
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(UsageError, match=r"pipe\.tar' is a pipe, but tars are files"):
        find_sources([str(tmp_path / "pipe.tar")])


def test_a_tar_that_lost_its_end_after_it_was_listed(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", {"__key__": "0", "mp4": video(tmp_path, 0)})
    (source,) = find_sources([str(tar)])
    assert isinstance(source, Source)
    tar.write_bytes(tar.read_bytes()[:2000])
    with pytest.raises(UsageError, match="cannot read"):
        find_sources([str(tar)])


def test_another_tar_with_the_same_keys_takes_no_ones_place(tmp_path: Path) -> None:
    """Also not with `changed="replace"`: the first tar is still there."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_tar(tmp_path / name / "a.tar", {"__key__": "000", "mp4": video(tmp_path, 100 if name == "one" else 200)})
    prepared(tmp_path / "one", out=tmp_path / "out")
    for changed in ("keep", "replace"):
        with pytest.raises(UsageError, match="would get the id '000', which another file has in the dataset"):
            shortgop.prepare(tmp_path / "other", tmp_path / "out", runner="inline", changed=changed)
    assert first_numbers(tmp_path / "out") == {"000": 100}
    report = shortgop.prepare(
        [tmp_path / "one", tmp_path / "other"], tmp_path / "both", runner="inline", id_root=tmp_path
    )
    assert (report.failures, first_numbers(tmp_path / "both")) == ((), {"one/000": 100, "other/000": 200})


def test_a_tar_that_was_cut_off_between_two_samples_is_refused(tmp_path: Path) -> None:
    """It reads like one with fewer samples."""
    tar = write_tar(
        tmp_path / "a.tar", *({"__key__": f"{number}", "mp4": video(tmp_path, number)} for number in (1, 2))
    )
    with tarfile.open(tar) as archive:
        second = archive.getmembers()[1].offset
    tar.write_bytes(tar.read_bytes()[:second])
    with pytest.raises(UsageError, match="has no end, so samples may be missing; copy it again"):
        find_sources([str(tar)])
