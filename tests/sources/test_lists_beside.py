"""Lists of labels that lie in a folder of videos, as Hugging Face's VideoFolder has them: a job of the folder says that
it does not read them, with the command that does."""

from __future__ import annotations

import os
import shlex
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shortgop
from flaky_proxy import Faults, FlakyProxy
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
    # The labels are there now, also those of a folder that was moved. Those of a column that is new are not.
    assert "metadata.csv" not in run("prep", folder, "--out", dataset, "--runner", "inline").stderr
    folder = folder.rename(tmp_path / "moved")
    assert "metadata.csv" not in run("prep", folder, "--out", dataset, "--runner", "inline").stderr
    (folder / "train/metadata.csv").write_text("file_name,label,age\n1.mp4,3,7\n2.mp4,4,8\n")
    assert "('age', 'label')" in run("prep", folder, "--out", dataset, "--runner", "inline").stderr


@contextmanager
def python_memory_below(num_bytes: int) -> Iterator[None]:
    """Assert that Python's objects never took so much memory in the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < num_bytes
    finally:
        tracemalloc.stop()


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

    def test_of_a_column_that_names_files_in_other_lists(self) -> None:
        make_empty("videos/1.mp4")
        Path("videos/metadata.csv").write_text("file_name,video\n1.mp4,a cat\n")
        (line,) = told("videos")
        assert "gives the videos its columns ('video')" in line

    def test_of_a_glob(self) -> None:
        make_empty("videos/1.mp4", "videos/train/2.mp4")
        Path("videos/metadata.csv").write_text("file_name,label\n1.mp4,3\n")
        assert told("videos/*") == [ON_LABEL.format("videos/metadata.csv")]
        # Whoever asks for the videos alone knows that there is more.
        assert told("videos/*.mp4") == []

    def test_of_a_folder_whose_name_looks_like_an_option(self) -> None:
        make_empty("-v/1.mp4")
        Path("-v/metadata.csv").write_text("file_name,label\n1.mp4,3\n")
        (line,) = told("./-v")
        assert line.startswith("-v/metadata.csv: not read")
        assert "`shortgop prep ./-v/metadata.csv --out DATASET`" in line

    def test_of_many_lists_one_line(self) -> None:
        for name in ("cat", "dog", "owl"):
            make_empty(f"videos/{name}/1.mp4")
            Path(f"videos/{name}/metadata.csv").write_text("file_name,age\n1.mp4,3\n")
        (line,) = told("videos")
        assert line.startswith("videos/cat/metadata.csv: not read, like 2 other lists, as")

    def test_nothing_of_lists_that_are_given_too(self) -> None:
        make_empty("videos/1.mp4")
        Path("videos/metadata.csv").write_text("file_name,label\n1.mp4,3\n")
        assert told("videos", "./videos/metadata.csv") == []
        assert told("videos/metadata.csv") == []

    def test_nothing_of_lists_that_are_given_under_other_paths(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make_empty("videos/train/1.mp4", "elsewhere/x")
        Path("videos/train/metadata.csv").write_text("file_name,label\n1.mp4,3\n")
        Path("link").symlink_to("videos")
        assert told("link", "videos/train/metadata.csv") == []
        assert told("videos", "videos/t*/*.csv") == []
        monkeypatch.chdir("elsewhere")
        assert told("../videos", "../videos/train/metadata.csv") == []
        assert told("../videos", "x") == [ON_LABEL.format("../videos/train/metadata.csv")]

    def test_one_line_of_several_folders(self) -> None:
        for name in ("cat", "dog"):
            make_empty(f"{name}/{name}.mp4")
            Path(name, "metadata.csv").write_text(f"file_name,age\n{name}.mp4,3\n")
        (line,) = told("dog", "cat")
        assert line.startswith("cat/metadata.csv: not read, like 1 other list, as")

    @pytest.mark.parametrize(
        "content",
        [
            "file_name\n1.mp4\n",
            "camera,date\nleft,2024\n",
            "",
            "\ufefffile_name,label\n1.mp4,3,4\n",
            "id,label\n1.mp4,3\n",
            "file_name,label\n1.mp4,3\n,4\n",
            "file_name,label,label\n1.mp4,3,4\n",
        ],
    )
    def test_nothing_of_files_that_are_no_lists_with_labels(self, content: str) -> None:
        """prep would refuse some of them: no advice should lead to an error."""
        make_empty("videos/1.mp4")
        Path("videos/metadata.csv").write_text(content)
        assert told("videos") == []

    def test_nothing_of_json_lines_without_paths(self) -> None:
        make_empty("videos/1.mp4")
        Path("videos/metadata.jsonl").write_text('{"clip": "1.mp4", "prompt": "a cat"}\n')
        assert told("videos") == []

    @pytest.mark.parametrize("name", ["2.mp4", "1.jpg", "../other/1.mp4"])
    def test_nothing_of_lists_that_name_no_video_of_their_folder(self, name: str) -> None:
        make_empty("videos/1.mp4", "videos/1.jpg", "other/1.mp4")
        Path("videos/metadata.csv").write_text(f"file_name,label\n{name},3\n")
        assert told("videos") == []

    def test_of_a_list_of_which_the_first_file_is_missing(self) -> None:
        make_empty("videos/1.mp4")
        Path("videos/metadata.csv").write_text("path,label\n0.mp4,3\n1.mp4,4\n")
        assert told("videos") == [ON_LABEL.format("videos/metadata.csv")]

    def test_of_a_long_list_only_the_start_is_read(self) -> None:
        make_empty("csv/1.mp4", "jsonl/1.mp4", "parquet/1.mp4", "line/1.mp4")
        Path("csv/metadata.csv").write_text("file_name,label\n" + f"1.mp4,{'3' * 1000}\n" * 20_000)
        Path("jsonl/metadata.jsonl").write_text('{"file_name": "1.mp4", "label": 3}\n' * 500_000)
        many = {"file_name": ["1.mp4"] * 20_000, "label": [[0.5] * 64] * 20_000}
        pq.write_table(pa.table(many), "parquet/metadata.parquet")
        # A line that ends nowhere near says nothing.
        Path("line/metadata.jsonl").write_text(f'{{"file_name": "1.mp4", "label": "{"3" * 20_000_000}"}}\n')
        del many
        with python_memory_below(3_000_000):
            for name in ("csv/metadata.csv", "jsonl/metadata.jsonl", "parquet/metadata.parquet"):
                assert told(name.partition("/")[0]) == [ON_LABEL.format(name)]
            assert told("line") == []

    def test_nothing_of_a_pipe(self) -> None:
        make_empty("videos/1.mp4")
        os.mkfifo("videos/metadata.csv")
        assert told("videos") == []

    def test_nothing_of_a_list_on_a_disk_that_does_not_answer(self, dead: Path) -> None:
        make_empty("videos/1.mp4")
        Path("videos/metadata.csv").symlink_to(dead / "metadata.csv")
        start = time.monotonic()
        assert told("videos") == []
        assert time.monotonic() - start < 60


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


class TestInAStore:
    """Few lists are looked at, little of each, and for a short time."""

    def test_the_starts_of_a_few_lists_are_fetched(self, proxied_url: str, s3_proxy: FlakyProxy) -> None:
        long = b"file_name\n" + b"1.mp4\n" * 100_000
        for number in range(6):
            put(f"{proxied_url}/in/{number}/1.mp4", b"not empty")
            put(f"{proxied_url}/in/{number}/metadata.csv", long)
            put(f"{proxied_url}/in/{number}/metadata.parquet", b"not looked at")
        s3_proxy.forget()
        assert told(f"{proxied_url}/in") == []
        read = s3_proxy.requests("GET", "HEAD", holding="/metadata.")
        assert [each.key.rpartition("/in/")[2] for each in read if each.method == "GET"] == [
            "0/metadata.csv", "1/metadata.csv", "2/metadata.csv",
        ]  # fmt: skip
        assert {each.range for each in read if each.method == "GET"} == {"bytes=0-65535"}

    def test_nothing_of_a_list_that_names_no_video_there(self, s3_url: str) -> None:
        put(f"{s3_url}/in/1.mp4", b"not empty")
        put(f"{s3_url}/in/metadata.csv", b"file_name,label\n2.mp4,3\n")
        assert told(f"{s3_url}/in") == []

    def test_a_list_that_cannot_be_read_is_soon_left(self, proxied_url: str, s3_proxy: FlakyProxy) -> None:
        put(f"{proxied_url}/in/1.mp4", b"not empty")
        for number in range(3):
            put(f"{proxied_url}/in/{number}/metadata.csv", b"file_name,label\n1.mp4,3\n")
        s3_proxy.forget()
        s3_proxy.faults(Faults(statuses=1000, status=503, only="/metadata.csv"))
        start = time.monotonic()
        assert told(f"{proxied_url}/in") == []
        assert time.monotonic() - start < 30
        read = s3_proxy.requests(holding="/metadata.csv")
        assert 1 <= len(read) <= 4
        assert {each.key.rpartition("/in/")[2] for each in read} == {"0/metadata.csv"}
