"""README.md and the pages below docs: every block of code is run by a test, every command names what exists, and those
of `shortgop` within sentences run on a small dataset."""

from __future__ import annotations

import random
import re
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]
from typer.testing import CliRunner

import shortgop
from documents import PAGES, ROOT, assert_exists, blocks, spans, words_of
from hub_server import hub_server
from loader_helpers import comes_true
from shortgop.cli import app
from synthetic import constant_rate_pts, make_video, read_number

# The test that runs each block of a page that has fences, in the order of the page.
FENCED = {
    "README.md": ["test_readme.test_the_first_snippet", "test_readme.test_a_dataset_of_ones_own"],
    "format.md": ["test_format.test_the_pages_example_is_a_root"],
    "gpu.md": ["test_documents.test_reading_on_a_device"],
    "imports.md": ["test_page_commands.test_imports"],
    "labels.md": ["test_annotate.test_the_pages_snippet_runs"],
    "sampling.md": ["test_documents.test_the_size_of_chunks"],
    "stores.md": [*["test_documents.test_reading_from_a_store"] * 2, "test_hub.test_what_the_page_shows_runs"],
    "training.md": [
        "test_documents.test_a_loop_with_the_loader_of_torch",
        *["test_training_page.test_columns_and_some_of_the_videos"] * 2,
        "test_training_page.test_training_and_validation_have_no_file_in_common",
        "test_training_page.test_clips_of_frames_one_second_apart",
        "test_overlapping_windows.test_every_frame_has_the_score_of_its_windows",
        "test_training_page.test_a_rule_of_ones_own",
        "test_training_page.test_parts_of_videos",
        "test_documents.test_two_outputs_of_one_decode",
        "test_training_page.test_several_views_at_test_time",
        "test_documents.test_a_loop_with_a_clip_loader",
        "test_training_steps.test_steps_in_place_of_epochs",
        "test_training_page.test_clips_of_several_sizes",
        "test_training_page_items.test_labels_for_each_frame_and_several_cameras",
        "test_migrations.test_numbers_of_frames_are_those_of_a_file_of_a_variable_rate",
        "test_training_page_items.test_boxes_follow_crops_and_flips",
        "test_masks.test_masks_lie_where_their_frames_show_them",
        "test_training_page_items.test_pairs_of_clips_are_of_one_video",
        "test_training_page_items.test_pairs_at_different_speeds",
        "test_training_page_items.test_clips_of_other_stretches_of_the_same_video",
        "test_training_page_items.test_the_sound_of_a_clip_is_what_is_heard_while_it_is_shown",
        "test_training_page_items.test_labels_for_each_frame_and_several_cameras",
        "test_training_page_items.test_a_camera_of_another_rate_and_a_table_with_a_clock_of_its_own",
    ],
    "trainers.md": [
        "test_lightning.test_lightning_resumes_a_data_loader_with_the_callback_of_the_page",
        "test_training_loaders.test_hugging_faces_trainer_resumes_with_the_samples_that_were_left",
        "test_ray_data.test_what_the_page_shows_runs",
        "test_changing_loops.test_weights_that_change_go_on_from_any_batch",
        "test_changing_loops.test_proportions_by_a_temperature",
        "test_continued_rows.test_a_state_is_carried_from_batch_to_batch_on_each_rank",
        "test_training_page.test_buckets",
        "test_latents.test_training_gets_the_latent_of_its_clip",
        "test_latents.test_training_gets_the_latent_of_its_clip",
        "test_sizes_of_clips.test_the_page_has_the_frames_and_sizes_of_a_vision_language_model",
        "test_sizes_of_clips.test_rows_of_several_videos_or_none_are_a_dataset_of_the_users_own",
        "test_token_packs.test_packs_are_as_many_on_each_rank_and_go_on",
        "test_robot_clips.test_what_the_page_shows_runs",
        "test_documents.test_the_dataset_class_before_and_after",
        "test_training_page.test_frames_between_a_start_and_a_goal",
    ],
    # And those that need a cloud or a cluster: all of its blocks are marked.
    "cluster.md": ["test_cluster_docs.test_the_commands_for_one_machine_and_for_machines_of_ones_own"] * 7
    + ["test_cluster_docs.test_a_shell_takes_each_block"] * 9,
}
# The modules that run the indented commands of `shortgop`.
INDENTED = {
    "README.md": "test_documents", "benchmarks.md": "test_documents", "imports.md": "test_page_commands",
    "labels.md": "test_page_commands", "stores.md": "test_page_commands",
}  # fmt: skip
# Indented blocks without commands, by how they begin.
NO_COMMANDS = {
    "dataset/": "the files of a dataset",
    "gops_of(v)": "a formula", "GOP       g =": "a formula", "shown(0) = 0": "a formula",
    "Var = 1/B^2": "a formula", "(1 + (s + c - 2)/G) / c": "a formula", "(a/c + d)": "a formula",
    "path,start,end,label": "a list, which test_page_commands takes from the page",
    "path,label,split": "a list, which test_page_commands takes from the page",
    "labels.csv: label integer": "what prep prints",
}  # fmt: skip
# Commands that no test can run or parse, by how they begin.
ELSEWHERE = {
    "docker run --gpus all": "Docker and a GPU; test_cluster_docs checks the other commands of Docker",
    "hf upload": "a tool of Hugging Face's, for the Hub alone",
    "azurite-blob": "Microsoft's emulator, an extra of npm; tests/shared/azurite.py starts it so where it is found",
    "export AZURE_STORAGE_ENDPOINT=": "the store's client reads these itself",
    "SHORTGOP_NVDEC=nvcuvid python train.py": "a program of the reader's own",
}
FRAMES = 150


def fenced(name: str, place: int = 0) -> str:
    """The block of a page at this place among those that have fences."""
    (page,) = (page for page in PAGES if page.name == name and page.parent.name != "design")
    return [block.text for block in blocks(page) if block.language][place]


def fenced_for(name: str, test: str) -> str:
    """The block of a page that this test of here runs. Blocks before it come and go."""
    return fenced(name, FENCED[name].index(f"test_documents.{test}"))


def begins(line: str, table: dict[str, str]) -> bool:
    return any(line.startswith(start) for start in table)


def indented_commands(page: Path) -> list[str]:
    """The lines of indented blocks, but for blocks without commands and for commands that run elsewhere."""
    shown = [block for block in blocks(page) if not block.language and not begins(block.text, NO_COMMANDS)]
    return [line for block in shown for line in block.text.splitlines() if not begins(line, ELSEWHERE)]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


PAGES_OF_USERS = [page for page in PAGES if page.parent.name != "design"]


@pytest.mark.parametrize("page", PAGES_OF_USERS, ids=name)
def test_each_block_between_fences_is_run_by_a_test(page: Path) -> None:
    tests = FENCED.get(page.name, [])
    assert len([block for block in blocks(page) if block.language]) == len(tests)
    for test in tests:
        module, function = test.split(".")
        (file,) = (ROOT / "tests").glob(f"*/{module}.py")
        text = file.read_text()
        assert f"def {function}(" in text
        assert page.name in text


@pytest.mark.parametrize("page", PAGES_OF_USERS, ids=name)
def test_each_indented_command_names_what_exists(page: Path) -> None:
    for line in indented_commands(page):
        words = words_of(line)
        assert_exists(words)
        assert words[0] != "shortgop" or page.name in INDENTED, line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_within_sentences_name_what_exists(page: Path) -> None:
    for span in spans(page):
        if re.match(r"(shortgop|make|ray|pip|python3?) [^,=]|[A-Z_]+=", span) and not begins(span, ELSEWHERE):
            assert_exists(words_of(span), complete=False)


@pytest.mark.parametrize(
    "command",
    [
        "make no-such-target", "make bench NO_SUCH=1", 'make gpu-check GPU_CHECK="--no-such 1"',
        "SHORTGOP_NO_SUCH=1 make test", "python benchmarks/no_such.py", "python benchmarks/scale.py --no-such",
        "python benchmarks/scale.py --videos many",
        "pip install '.[no-such]'", "shortgop no-such", "shortgop prep a --out b --no-such", "ray start --no-such",
        "conda install shortgop",
    ],
)  # fmt: skip
def test_a_command_that_names_what_does_not_exist_is_found(command: str) -> None:
    with pytest.raises(Exception, match=r"[Nn]o.such|many|neither run nor parsed"):
        assert_exists(words_of(command))


def test_no_exception_is_left_that_no_page_has() -> None:
    shown = [block for page in PAGES_OF_USERS for block in blocks(page) if not block.language]
    for start in NO_COMMANDS:
        assert any(block.text.startswith(start) for block in shown), start
    for start in ELSEWHERE:
        assert any(begins(line, {start: ""}) for block in shown for line in block.text.splitlines()), start


def run(words: list[str]) -> str:
    inline = {"prep": ["--runner", "inline"], "bench": ["--seconds", "0.2", "--peers", "pyav"]}
    done = CliRunner().invoke(app, [*words, *inline.get(words[0], [])])
    assert done.exit_code == 0, (words, done.output)
    return done.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with videos, a list of them, and the dataset that the README's first command makes."""
    root = tmp_path_factory.mktemp("documents")
    rows = ["path,label,split"]
    for number, video in enumerate(("kitchen/000.mp4", "kitchen/001.mp4", "street/002.mp4")):
        for folder in (root, root / "VIDEOS"):
            (folder / video).parent.mkdir(parents=True, exist_ok=True)
        make_video(
            root / video, pts=constant_rate_pts(Fraction(30), FRAMES), timebase=Fraction(1, 30), size=(128, 96),
            first_number=1000 * number,
        )  # fmt: skip
        shutil.copy(root / video, root / "VIDEOS" / video)
        rows.append(f"{video},{number},{'train' if number else 'test'}")
    (root / "labels.csv").write_text("\n".join(rows))
    (root / "corrected.csv").write_text("id,label\nkitchen/001.mp4,7\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for line in indented_commands(ROOT / "README.md"):
            if line.startswith("shortgop "):
                run(words_of(line)[1:])
    return root


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "folder")
    monkeypatch.chdir(tmp_path / "folder")
    return tmp_path / "folder"


def test_the_first_commands(folder: Path) -> None:
    videos = shortgop.open("DATASET")
    assert [read_number(video[FRAMES - 1]) for video in videos] == [149, 1149, 2149]
    assert videos.columns["label"].tolist() == [0, 7, 2]


# What the test gives for a word in the commands of sentences.
PLACEHOLDERS = {
    "...": "VIDEOS --out MADE", "SOURCE...": "VIDEOS", "DATASET...": "DATASET",
    "ID...": "kitchen/000.mp4 street/002.mp4", "ID": "kitchen/000.mp4", "VIDEO": "kitchen/001.mp4",
    "SNAPSHOT": "000001", "LABELS": "labels.csv", "DIR": "cache",
}  # fmt: skip
# Commands with all that they need: another argument than options, and their values.
SENTENCES = sorted(
    {
        span
        for page in PAGES_OF_USERS
        for span in spans(page)
        if re.match(r"shortgop [a-z]+ [^-]|shortgop doctor$", span)
    }
)


@pytest.mark.first_case_short
@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_command_within_a_sentence_runs(
    sentence: str, folder: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words_of(" ".join(PLACEHOLDERS.get(word, word) for word in sentence.split()))[1:]
    if words[1:2] and words[1].startswith(("URL", "s3://BUCKET/")):
        words[1] = request.getfixturevalue("s3_url")
        run(["prep", "VIDEOS", "--out", words[1]])
    if words[1:2] and words[1].startswith("hf://"):
        shutil.copytree(folder, tmp_path / "repository/main")
    if words[0] in {"annotate", "drop"} and "TARGET" in words:
        shutil.copytree("DATASET", "TARGET")
    with hub_server({"main": tmp_path / "repository/main"}, repository="OWNER/NAME") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        run(words)
    written = {"--out", "--report", "--cache-dir"}
    for before, word in zip(words, words[1:], strict=False):
        if before in written or word in {"TARGET", "OUT.mp4"}:
            assert Path(word).exists() == ("--dry-run" not in words)


@pytest.mark.parametrize(
    "line", [line for line in indented_commands(ROOT / "docs" / "benchmarks.md") if line.startswith("shortgop ")]
)
def test_a_comparison_of_ones_own(line: str, folder: Path) -> None:
    assert "shortgop" in run(words_of(line)[1:])


@pytest.fixture
def names(folder: Path) -> dict[str, Any]:
    """What the blocks take for granted. The model says for each clip that its label is 7, as that of one video is."""

    def model(frames: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.full((len(frames),), 7)).float()

    return {
        "shortgop": shortgop, "torch": torch, "DataLoader": DataLoader, "Dataset": torch.utils.data.Dataset,
        "VideoDecoder": VideoDecoder, "random": random, "world_size": 1, "model": model,
        "criterion": torch.nn.functional.cross_entropy,
    }  # fmt: skip


def few(text: str) -> str:
    """The text of a block for few and small videos, in one process, and without what it leaves to the reader."""
    text = text.replace("224", "64").replace("num_workers=8, persistent_workers=True", "num_workers=0")
    text = re.sub(r"(ClipLoader\(.*)\)$", r"\1, workers=0)", text, flags=re.MULTILINE)
    text = text.replace("num_workers=8", "num_workers=0").replace(", 100)", ", 1)").replace(", ...}", "}")
    return re.sub(r"global_batch_size=\d+", "global_batch_size=3", text).replace("256 //", "3 //")


def test_reading_on_a_device(names: dict[str, Any]) -> None:
    """The reader for the CPU stands in for that of a GPU."""
    exec(few(fenced("gpu.md")).replace('"cuda"', '"cpu"'), names)
    frames = names["dataset"][0].get_frames_at([120, 124]).data
    assert [read_number(frame) for frame in frames] == [120, 124]
    (batch,) = names["loader"]
    names["loader"].close()
    assert batch["frames"].shape == (3, 16, 3, 64, 64)


def test_the_size_of_chunks(names: dict[str, Any]) -> None:
    names["dataset"] = shortgop.ClipDataset("DATASET", shortgop.AllClips(4), metadata=["label"])
    exec(few(fenced("sampling.md")), names)
    assert 0 <= names["rho"] <= 1
    assert len(names["sampler"]) > 0


def test_reading_from_a_store(names: dict[str, Any], s3_url: str, folder: Path) -> None:
    run(["copy", "DATASET", f"{s3_url}/dataset"])
    for place in range(2):
        text = fenced("stores.md", place).replace("s3://bucket", s3_url).replace("/local", str(folder))
        exec(text, names)
        assert read_number(names["dataset"]["kitchen/001.mp4"][7]) == 1007
    # A thread writes what was read.
    assert comes_true(lambda: any((folder / "cache").rglob("*")), 30)


def test_a_loop_with_the_loader_of_torch(names: dict[str, Any]) -> None:
    exec(few(fenced_for("training.md", "test_a_loop_with_the_loader_of_torch")), names)
    assert names["batch"]["frames"].shape == (3, 16, 3, 64, 64)
    assert sorted(names["batch"]["label"].tolist()) == [0, 2, 7]
    assert names["loss"] > 0
    names["sampler"].load_state_dict(names["checkpoint"]["sampler"])
    assert names["sampler"].epoch == 1


def test_two_outputs_of_one_decode(names: dict[str, Any]) -> None:
    exec(
        few(fenced_for("training.md", "test_two_outputs_of_one_decode"))
        .replace("batch_size=8", "batch_size=3")
        .replace("pairs, 8", "pairs, 3"),
        names,
    )
    (batch,) = names["loader"]
    assert batch["input"].shape == (3, 3, 3, 112, 112)
    assert batch["target"].shape == (3, 1, 3, 64, 64)
    augmented = names["augmented"][0]
    assert (augmented["frames"].dtype, augmented["flip"].dtype) == (torch.float16, torch.bool)


def test_a_loop_with_a_clip_loader(names: dict[str, Any]) -> None:
    """It goes on after the first of two batches."""
    policy = shortgop.RandomClips(16, stride=4, clips_per_video=2)
    names["dataset"] = shortgop.ClipDataset("DATASET", policy, size=(64, 64), metadata=["label"])
    names["sampler"] = shortgop.ElasticSampler(names["dataset"], 3)
    with shortgop.ClipLoader(names["dataset"], names["sampler"], workers=0) as loader:
        first, second = ((batch["draw"].tolist(), batch.state) for batch in loader)
    names["checkpoint"] = {"loader": first[1]}
    exec(few(fenced_for("training.md", "test_a_loop_with_a_clip_loader")), names)
    names["loader"].close()
    assert names["batch"]["draw"].tolist() == second[0]
    assert names["checkpoint"] == {"loader": second[1]}
    assert names["loss"] > 0


def test_the_dataset_class_before_and_after(names: dict[str, Any]) -> None:
    text, _, after = fenced_for("trainers.md", "test_the_dataset_class_before_and_after").rpartition("\n\n\n")
    exec(text, names)
    before = names["Clips"]()
    before.paths, before.labels = ["kitchen/001.mp4"], [7]
    item = eval(after, names)[1]
    for frames, label in (before[0], (item["frames"], item["label"])):
        numbers = [read_number(frame) for frame in frames]
        assert numbers == list(range(numbers[0], numbers[0] + 61, 4))
        assert (numbers[0] // 1000, label) == (1, 7)
