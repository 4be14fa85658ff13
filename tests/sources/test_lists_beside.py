"""Lists of labels that lie in a folder of videos, as Hugging Face's VideoFolder has them: a job of the folder says that
it does not read them, with the command that does."""

from __future__ import annotations

import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shortgop
from labelled_videos import run
from object_sources import make
from shortgop.jobs.finding.importing import Importing
from source_arguments import find_sources
from source_arguments import make as make_empty
from store_helpers import put

ON_LABEL = (
    "{0}: not read, as a folder stands for its video files alone; `shortgop prep {0} --out DATASET`, now or later, "
    "gives the videos its columns ('label') and encodes none again"
)


def told(*arguments: str) -> list[str]:
    """What a job of these arguments is told of them."""
    said: list[str] = []
    find_sources(arguments, importing=Importing(tell=said.append))
    return said


def test_the_labels_of_a_folder_are_told_of_with_the_command_that_takes_them(tmp_path: Path) -> None:
    folder, dataset = tmp_path / "my videos", tmp_path / "dataset"
    make(folder / "train/1.mp4")
    make(folder / "train/2.mp4", 500)
    # Below each of the two folders names are those in it.
    make(folder / "test/1.mp4", 1000)
    (folder / "train/metadata.csv").write_text("file_name,label\n1.mp4,3\n2.mp4,4\n")
    done = run("prep", folder, "--out", dataset, "--runner", "inline")
    assert done.exit_code == 0
    (line,) = (line for line in done.stderr.splitlines() if "metadata.csv" in line)
    command = shlex.split(line.split("`")[1].replace("DATASET", str(dataset)))
    again = run(*command[1:], "--runner", "inline")
    assert "2 videos already in the dataset got new columns" in again.stdout
    assert "added" not in again.stdout
    labels = {video.id: video.attributes.get("label") for video in shortgop.open(dataset)}
    assert labels == {"test/1.mp4": None, "train/1.mp4": 3, "train/2.mp4": 4}


@pytest.mark.usefixtures("own_folder")
class TestWhatIsSaid:
    @pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl", "metadata.parquet"])
    def test_of_each_kind_of_list(self, name: str) -> None:
        make_empty("videos/1.mp4")
        file = Path("videos", name)
        if name.endswith(".csv"):
            file.write_text("file_name,label\n1.mp4,3\n")
        elif name.endswith(".jsonl"):
            file.write_text('{"file_name": "1.mp4", "label": 3}\n')
        else:
            pq.write_table(pa.table({"file_name": ["1.mp4"], "label": [3]}), file)
        assert told("videos") == [ON_LABEL.format(f"videos/{name}")]

    def test_of_a_glob(self) -> None:
        make_empty("videos/1.mp4", "videos/train/2.mp4")
        Path("videos/metadata.csv").write_text("file_name,label\n1.mp4,3\n")
        assert told("videos/*") == [ON_LABEL.format("videos/metadata.csv")]
        # Whoever asks for the videos alone knows that there is more.
        assert told("videos/*.mp4") == []

    def test_of_many_lists_one_line(self) -> None:
        for name in ("cat", "dog", "owl"):
            make_empty(f"videos/{name}/1.mp4")
            Path(f"videos/{name}/metadata.csv").write_text("file_name,age\n1.mp4,3\n")
        (line,) = told("videos")
        assert line.startswith("videos/cat/metadata.csv: not read, like 2 other lists below the folder, as")

    def test_nothing_of_lists_that_are_given_too(self) -> None:
        make_empty("videos/1.mp4")
        Path("videos/metadata.csv").write_text("file_name,label\n1.mp4,3\n")
        assert told("videos", "./videos/metadata.csv") == []
        assert told("videos/metadata.csv") == []

    @pytest.mark.parametrize(
        "content", ["file_name\n1.mp4\n", "camera,date\nleft,2024\n", "", "\ufefffile_name,label\n1.mp4,3,4\n"]
    )
    def test_nothing_of_files_that_are_no_lists_with_labels(self, content: str) -> None:
        make_empty("videos/1.mp4")
        Path("videos/metadata.csv").write_text(content)
        assert told("videos") == []


def test_a_folder_in_a_store_is_told_of_too(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/in/1.mp4", make(tmp_path / "1.mp4"))
    put(f"{s3_url}/in/metadata.csv", b"file_name,label\n1.mp4,3\n")
    line = ON_LABEL.format(f"{s3_url}/in/metadata.csv")
    assert told(f"{s3_url}/in") == told(f"{s3_url}/in/") == [line]
    assert told(f"{s3_url}/in", f"{s3_url}/in/metadata.csv") == []
    run("prep", f"{s3_url}/in", "--out", tmp_path / "dataset", "--runner", "inline")
    run(*shlex.split(line.split("`")[1].replace("DATASET", str(tmp_path / "dataset")))[1:], "--runner", "inline")
    (video,) = shortgop.open(tmp_path / "dataset")
    assert (video.id, video.attributes) == ("1.mp4", {"file_name": "1.mp4", "label": 3})
