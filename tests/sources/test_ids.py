"""Which id a video gets, whatever a job is given: docs/ids.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shortgop
from datasets import current_manifest
from shortgop.cli import app
from shortgop.jobs.finding.ids import id_roots, path_below, paths_of
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.dataset_files.root_file import MAX_ID_ROOTS, read_root, set_id_roots
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo

PAGE = Path(__file__).parents[2] / "docs" / "ids.md"


@pytest.fixture
def corpus(constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A/x/v.mp4, A/w.mp4 and B/u.mp4 in a folder that the test runs in: three files of different content."""
    for number, name in enumerate(("A/x/v.mp4", "A/w.mp4", "B/u.mp4")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        # A few bytes after the end of an MP4 change its identity, and nothing else.
        (tmp_path / name).write_bytes(constant_video.path.read_bytes() + bytes(8 + number))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prep(*sources: str, out: str = "dataset", **options: Any) -> Report:
    return prepare(sources, DiskStorage(Path(out)), Profile(), where=Where(runner="inline"), **options)


def ids(out: str = "dataset") -> list[str]:
    return current_manifest(Path(out)).ids


def roots(out: str = "dataset") -> list[str]:
    return [os.path.relpath(root) for root in read_root(DiskStorage(Path(out))).id_roots]


def test_a_file_and_then_the_folder_above_store_it_once(corpus: Path) -> None:
    prep("A/x/v.mp4")
    assert (ids(), roots()) == (["v.mp4"], ["A/x"])
    report = prep("A")
    assert (report.already_there, report.videos_added) == (1, 1)
    assert (ids(), roots()) == (["v.mp4", "w.mp4"], ["A/x", "A"])


def test_a_folder_and_then_a_file_in_it_store_it_once(corpus: Path) -> None:
    prep("A")
    assert (ids(), roots()) == (["w.mp4", "x/v.mp4"], ["A"])
    for argument in ("A/x/v.mp4", "A/x", "A/*/v.mp4", "A/x/../w.mp4", str(corpus / "A")):
        report = prep(argument)
        assert (report.already_there, report.videos_added) == (report.sources, 0)
    assert (ids(), roots()) == (["w.mp4", "x/v.mp4"], ["A"])


@pytest.mark.parametrize("arguments", [("A", "A/x/v.mp4"), ("A/x/v.mp4", "A"), ("A/x", "A/*.mp4", "A")])
def test_the_order_of_arguments_makes_no_difference(corpus: Path, arguments: tuple[str, ...]) -> None:
    prep(*arguments)
    assert (ids(), roots()) == (["w.mp4", "x/v.mp4"], ["A"])


def test_folders_beside_each_other_are_all_remembered(corpus: Path) -> None:
    prep("A", "B/u.mp4")
    assert (ids(), roots()) == (["u.mp4", "w.mp4", "x/v.mp4"], ["A", "B"])
    assert prep("A/x", "B").videos_added == 0


def test_a_corpus_that_moved_has_the_same_ids_and_is_not_encoded_again(corpus: Path) -> None:
    prep("A")
    shutil.move("A", "elsewhere")
    assert prep("elsewhere").already_there == 2
    # From now on a part of it is known as well.
    assert prep("elsewhere/x/v.mp4").already_there == 1
    assert (ids(), roots()) == (["w.mp4", "x/v.mp4"], ["A", "elsewhere"])


def test_an_id_root_goes_before_all_others_and_is_remembered(corpus: Path) -> None:
    prep("A/x/v.mp4", id_root=".")
    assert (ids(), roots()) == (["A/x/v.mp4"], ["."])
    prep("A", "B")
    assert (ids(), roots()) == (["A/w.mp4", "A/x/v.mp4", "B/u.mp4"], ["."])
    prep("B", id_root="B")
    assert (ids()[-1], roots()) == ("u.mp4", ["B", "."])


def test_an_id_root_that_does_not_hold_the_sources_is_refused(corpus: Path) -> None:
    with pytest.raises(shortgop.UsageError, match="--id-root A does not hold 'B'; give a folder that holds all"):
        prep("A", "B", id_root="A")
    with pytest.raises(shortgop.UsageError, match="--id-root nowhere is not a folder"):
        prep("A", id_root="nowhere")
    with pytest.raises(shortgop.UsageError, match="--id-root (long)+ is not a folder"):
        prep("A", id_root="long" * 100)
    assert not Path("dataset").exists()


def test_two_files_of_one_job_with_the_same_id_are_told_apart_by_the_folder_that_is_named(corpus: Path) -> None:
    shutil.copy("B/u.mp4", "A/u.mp4")
    with pytest.raises(shortgop.UsageError, match=f"add --id-root {re.escape(str(corpus))}, a folder that both lie in"):
        prep("A", "B")
    prep("A", "B", id_root=str(corpus))
    assert ids() == ["A/u.mp4", "A/w.mp4", "A/x/v.mp4", "B/u.mp4"]


def test_lists_give_ids_as_they_say(corpus: Path) -> None:
    Path("list.csv").write_text("path,id\nA/x/v.mp4,seven\nA/w.mp4,\n")
    prep("list.csv")
    assert (ids(), roots()) == (["A/w.mp4", "seven"], [])


def test_links_lead_to_the_same_ids(corpus: Path) -> None:
    prep("A")
    Path("link").symlink_to("A")
    Path("here").symlink_to(".")
    for argument in ("link", "link/x", "link/x/v.mp4", "here/A/x", "here/link/x/v.mp4"):
        assert prep(argument).videos_added == 0, argument
    assert roots() == ["A"]
    # A link inside the corpus is a name of its own.
    Path("A/linked").symlink_to("../B")
    prep("A")
    assert prep("A/linked/u.mp4").videos_added == 0
    assert ids() == ["linked/u.mp4", "w.mp4", "x/v.mp4"]


def test_a_folder_whose_name_is_not_utf8_is_remembered_in_a_root_that_is(corpus: Path) -> None:
    os.rename("A", os.fsdecode(b"caf\xe9"))  # noqa: PTH104
    folder = os.fsdecode(b"caf\xe9")
    prep(folder)
    assert prep(f"{folder}/x/v.mp4").already_there == 1
    assert ids() == ["w.mp4", "x/v.mp4"]
    assert "\\udce9" in json.loads(Path("dataset/zarr.json").read_bytes())["attributes"]["shortgop"]["id_roots"][0]


def test_a_repair_finds_a_file_by_its_id(corpus: Path) -> None:
    prep("A")
    shard = next(Path("dataset/shards").iterdir())
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    damaged = CliRunner().invoke(app, ["verify", "dataset"]).stderr.split("video '")[1].split("'")[0]
    assert damaged == "x/v.mp4"
    done = CliRunner().invoke(app, ["verify", "dataset", "--repair", "A/x/v.mp4", "--runner", "inline"])
    assert done.exit_code == 0, done.output
    assert roots() == ["A"]


def test_a_dataset_of_an_earlier_version_remembers_from_its_next_job_on(corpus: Path) -> None:
    prep("A")
    document = json.loads(Path("dataset/zarr.json").read_text())
    assert document["attributes"]["shortgop"].pop("id_roots") == [str(corpus / "A")]
    Path("dataset/zarr.json").write_text(json.dumps(document))
    assert prep("A").already_there == 2
    assert roots() == ["A"]
    assert prep("A/x/v.mp4").already_there == 1


def test_roots_that_another_job_added_meanwhile_are_noticed(corpus: Path) -> None:
    prep("B")

    def other_job(progress: shortgop.Progress) -> None:
        if progress.note.startswith("looking"):
            set_id_roots(DiskStorage(Path("dataset")), (str(corpus),))

    with pytest.raises(shortgop.DatasetBusyError, match="another job has prepared other folders"):
        prep("A", on_update=other_job)
    assert ids() == ["u.mp4"]


def test_another_job_may_have_added_the_same_roots(corpus: Path) -> None:
    prep("B")
    before = roots()

    def other_job(progress: shortgop.Progress) -> None:
        if progress.note.startswith("looking"):
            set_id_roots(DiskStorage(Path("dataset")), (str(corpus / "B"), str(corpus / "A")))

    assert before == ["B"]
    assert prep("A", on_update=other_job).failures == ()
    assert ids() == ["u.mp4", "w.mp4", "x/v.mp4"]


def test_equal_contents_under_two_ids_are_reported_and_not_refused(corpus: Path) -> None:
    for copy in ("A/x/copy.mp4", "B/again.mp4"):
        shutil.copy("A/w.mp4", copy)
    report = prep("A", "B")
    assert (report.videos_added, report.failures) == (5, ())
    assert report.equal_contents.videos == 2
    assert report.equal_contents.pairs == (("again.mp4", "w.mp4"), ("again.mp4", "x/copy.mp4"))
    done = CliRunner().invoke(app, ["prep", "A", "--out", "dataset", "--runner", "inline"])
    assert "2 videos have the same content as another one under another id: w.mp4 is again.mp4" in done.stdout
    done = CliRunner().invoke(app, ["prep", "A", "--out", "dataset", "--runner", "inline", "--json"])
    assert json.loads(done.stdout)["equal_contents"]["videos"] == 2


# The plan

NAMES = st.sampled_from(["a", "b", "c"])
FOLDERS = st.lists(NAMES, max_size=4).map(lambda names: "".join(f"/{name}" for name in names))


@given(st.lists(FOLDERS, max_size=5, unique=True), FOLDERS)
def test_a_path_is_below_the_oldest_root_that_holds_it(folders: list[str], path: str) -> None:
    holding = [root for root in folders if f"{path}/".startswith(f"{root}/")]
    expected = None if not holding else path[len(holding[0]) + 1 :]
    assert path_below({root: age for age, root in enumerate(folders)}, [path]) == expected


@given(st.lists(st.lists(FOLDERS, min_size=1, max_size=3), max_size=5), FOLDERS)
def test_a_file_that_a_root_holds_keeps_its_id_whatever_later_jobs_are_given(jobs: list[list[str]], file: str) -> None:
    known: tuple[str, ...] = ()
    first_id: str | None = None
    for bases in jobs:
        known = id_roots(known, [Path(base or "/") for base in bases])
        video_id = path_below({root: age for age, root in enumerate(known)}, [file])
        assert first_id in (None, video_id)
        first_id = video_id
        assert all(path_below(dict.fromkeys(known, 0), paths_of(Path(base or "/"))) is not None for base in bases)


@given(st.lists(FOLDERS, min_size=1, max_size=5), st.randoms())
def test_roots_do_not_depend_on_the_order_of_folders(bases: list[str], random: Any) -> None:
    shuffled = random.sample(bases, len(bases))
    assert id_roots((), [Path(base or "/") for base in bases]) == id_roots((), [Path(base or "/") for base in shuffled])


def test_only_so_many_folders_are_remembered(corpus: Path) -> None:
    prep("A")
    set_id_roots(DiskStorage(Path("dataset").absolute()), tuple(f"/gone/{number}" for number in range(MAX_ID_ROOTS)))
    prep("A")
    assert len(read_root(DiskStorage(Path("dataset"))).id_roots) == MAX_ID_ROOTS


# The page


@pytest.mark.long
def test_the_table_of_the_page_is_true(corpus: Path) -> None:
    """Each row's commands are run one after the other on a new dataset; the ids are those that the row says."""
    rows = re.findall(r"^\| (`prep.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 6
    Path("list.csv").write_text("path,id\nA/x/v.mp4,seven\nA/w.mp4,\n")
    for number, (commands, expected) in enumerate(rows):
        for command in re.findall(r"`(prep .*?)`", commands):
            arguments = [*shlex.split(command.replace("list.csv", str(corpus / "list.csv"))), "--runner", "inline"]
            done = CliRunner().invoke(app, [*arguments, "--out", f"dataset{number}"])
            assert done.exit_code == 0, (command, done.output)
        assert ids(f"dataset{number}") == sorted(re.findall(r"`(.*?)`", expected)), commands


def labels_of(out: str = "dataset") -> dict[str, Any]:
    return {video.id: video.attributes.get("label") for video in shortgop.open(out)}


@pytest.mark.parametrize("absolute", [False, True])
def test_a_list_labels_what_a_folder_stored(absolute: bool, corpus: Path) -> None:
    """The folder first, labels later: nothing is encoded again, though the list writes other paths."""
    prep("A")
    base = f"{corpus}/" if absolute else ""
    (corpus / "labels.csv").write_text(f"path,label\n{base}A/x/v.mp4,1\n{base}A/w.mp4,2\n{base}B/u.mp4,3\n")
    report = prep("labels.csv")
    assert (report.already_there, report.videos_added, report.relabelled) == (2, 1, 2)
    listed = (base + "B/u.mp4").lstrip("/")
    assert labels_of() == {"x/v.mp4": 1, "w.mp4": 2, listed: 3}
    # Given with the folder it is still one video, the one with the label.
    assert prep("A", "labels.csv").videos_added == 0
    assert len(ids()) == 3


def test_a_file_that_changed_is_not_the_one_that_is_there(corpus: Path) -> None:
    prep("A")
    with (corpus / "A" / "w.mp4").open("ab") as file:
        file.write(bytes(100))
    (corpus / "labels.csv").write_text("path,label\nA/w.mp4,2\n")
    assert prep("labels.csv").videos_added == 1
    assert labels_of() == {"x/v.mp4": None, "w.mp4": None, "A/w.mp4": 2}
