"""Datasets and sources in repositories of the Hugging Face Hub, hf://, which `hub_server` stands for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import HfApi, RepoFile, hf_hub_url
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shortgop
from documents import ROOT, blocks
from hub_server import HubServer, hub_server
from lerobot_files import write_lerobot
from shortgop.cli import app
from shortgop.errors import ToolError, UsageError
from shortgop.jobs.named_options import prepare_without_warning
from shortgop.storage.hub import HubPlace, hub_place
from shortgop.storage.locate import storage_at
from synthetic import constant_rate_pts, make_video, read_number

REPOSITORY = "hf://datasets/owner/name"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("hf://datasets/me/videos", HubPlace("datasets", "me/videos", "main", "")),
        ("hf://datasets/me/videos/a/b c/", HubPlace("datasets", "me/videos", "main", "a/b c")),
        ("hf://datasets/me/videos@v1.0/a@b", HubPlace("datasets", "me/videos", "v1.0", "a@b")),
        ("hf://datasets/me/videos@refs/pr/3/a", HubPlace("datasets", "me/videos", "refs/pr/3", "a")),
        ("hf://datasets/me/videos@refs/convert/parquet", HubPlace("datasets", "me/videos", "refs/convert/parquet", "")),
        ("hf://datasets/me/videos@my%2Fbranch/a", HubPlace("datasets", "me/videos", "my/branch", "a")),
        ("hf://spaces/me/app/a", HubPlace("spaces", "me/app", "main", "a")),
        ("hf://me/model/a", HubPlace("models", "me/model", "main", "a")),
    ],
)
def test_a_url_is_a_path_in_a_revision_of_a_repository(url: str, place: HubPlace) -> None:
    assert hub_place(url) == place


@pytest.mark.parametrize(
    "url", ["hf://", "hf://datasets", "hf://datasets/me", "hf://me", "hf:///a/b", "hf://me@v1/a", "hf://../name"]
)
def test_a_url_without_a_repository_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="names no repository; write it like hf://datasets/OWNER/NAME/FOLDER"):
        storage_at(url)


@given(st.text("ab/@%. #?é", max_size=20))
def test_any_text_behind_hf_is_a_place_on_the_web_or_an_error(rest: str) -> None:
    message = said = ""
    try:
        said = hub_place(f"hf://{rest}").files_url
    except UsageError as error:
        message = str(error)
    assert said or f"hf://{rest}" in message
    assert not set(said) & set(" #?")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("hf://datasets/me/videos@refs/pr/3/set #1/zarr.json", "dataset"),
        ("hf://spaces/me/app@v1/a?/zarr.json", "space"),
        ("hf://me/model/é/zarr.json", "model"),
    ],
)
def test_files_are_where_hugging_faces_own_client_reads_them(url: str, kind: str) -> None:
    place = hub_place(url)
    theirs = hf_hub_url(place.repository, place.path, repo_type=kind, revision=place.revision)
    assert place.files_url == theirs


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever runs the tests may be logged in."""
    for name in ("HF_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no home"))


@pytest.fixture(scope="module")
def revisions(three_videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in the folder `set #1` of the revision main, and one of fewer videos in that of v1.0."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(three_videos, root / "main/set #1")
    shutil.copytree(three_videos, root / "v1.0/set #1")
    drop = ["drop", str(root / "v1.0/set #1"), shortgop.open(three_videos).ids[0]]
    assert CliRunner().invoke(app, drop).exit_code == 0
    return root


@pytest.fixture
def hub(revisions: Path, tmp_path: Path, no_token: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A repository whose revisions lie in tmp_path / "repository"."""
    assert no_token is None
    root = shutil.copytree(revisions, tmp_path / "repository")
    with hub_server({name: root / name for name in ("main", "v1.0")}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_a_dataset_on_the_hub_is_read_and_copied(hub: HubServer, tmp_path: Path) -> None:
    url = f"{REPOSITORY}/set #1"
    dataset = shortgop.open(url)
    assert [read_number(frame) for frame in dataset["ntsc.mp4"][3:6]] == [3, 4, 5]
    assert dataset.lost_ids == ()
    for command in (["info", url], ["verify", url], ["copy", url, str(tmp_path / "copy")]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert shortgop.open(tmp_path / "copy").ids == dataset.ids


def test_files_are_listed_as_hugging_faces_own_client_lists_them(hub: HubServer) -> None:
    ours = {(each.key, each.num_bytes) for each in storage_at(f"{REPOSITORY}/set #1").files("shards")}
    own_pages = [unquote(urlsplit(page).path) for page in hub.pages]
    client = HfApi(endpoint=hub.endpoint)
    theirs = client.list_repo_tree("owner/name", "set #1/shards", recursive=True, repo_type="dataset")
    assert ours == {(each.path.removeprefix("set #1/"), each.size) for each in theirs if isinstance(each, RepoFile)}
    assert own_pages == [unquote(urlsplit(page).path) for page in hub.pages[len(own_pages) :]]


def test_what_the_hub_refuses_for_a_moment_is_asked_for_again(hub: HubServer) -> None:
    place = storage_at(f"{REPOSITORY}/set #1")
    hub.refusals = 2
    assert next(iter(place.files("shards"))).num_bytes > 0
    hub.refusals = 2
    assert place.read("zarr.json")
    assert place.counts().retries == 4


def test_a_revision_is_named_behind_an_at(hub: HubServer) -> None:
    assert hub.endpoint
    assert len(shortgop.open(f"{REPOSITORY}@v1.0/set #1")) == len(shortgop.open(f"{REPOSITORY}@main/set #1")) - 1


def test_what_the_page_shows_runs(hub: HubServer) -> None:
    assert hub.endpoint
    shown = [block.text for block in blocks(ROOT / "docs" / "stores.md") if block.language][2]
    names: dict[str, Any] = {"shortgop": shortgop}
    exec(shown.replace("OWNER/NAME", "owner/name").replace("DATASET", "set #1"), names)
    assert len(names["dataset"]) == 2


def test_a_dataset_that_lacks_a_shard_is_told(hub: HubServer, tmp_path: Path) -> None:
    assert hub.endpoint
    for shard in (tmp_path / "repository/main/set #1/shards").iterdir():
        shard.unlink()
    with pytest.warns(UserWarning, match="3 of 3 videos .* cannot be read"):
        dataset = shortgop.open(f"{REPOSITORY}/set #1")
    assert len(dataset.lost_ids) == len(dataset)


def test_what_was_replaced_while_it_was_read_is_not_mixed(hub: HubServer, tmp_path: Path) -> None:
    assert hub.endpoint
    file = tmp_path / "repository/main/long.bin"
    file.write_bytes(bytes(1 << 20))
    with storage_at(REPOSITORY).open("long.bin") as opened:
        assert opened.read(0, 4) == bytes(4)
        file.write_bytes(b"\1" * (1 << 20))
        with pytest.raises(OSError, match="replaced while it was read"):
            opened.read(4, 8)


def test_an_empty_file_and_one_that_is_not_there(hub: HubServer, tmp_path: Path) -> None:
    assert hub.endpoint
    (tmp_path / "repository/main/empty.bin").touch()
    place = storage_at(REPOSITORY)
    found = place.find("empty.bin")
    assert found is not None
    assert found.num_bytes == 0
    assert place.find("other.bin") is None
    assert place.read("empty.bin") == b""


def test_nothing_is_written_to_the_hub(hub: HubServer, tmp_path: Path) -> None:
    assert hub.endpoint
    video = make_video(tmp_path / "a.mp4", pts=constant_rate_pts(Fraction(30), 4), timebase=Fraction(1, 30)).path
    done = CliRunner().invoke(app, ["prep", str(video), "--out", f"{REPOSITORY}/new", "--runner", "inline"])
    assert done.exit_code == 1
    assert "writes nothing to the Hugging Face Hub; `hf upload` does" in " ".join(done.output.split())


def test_sources_on_the_hub_are_prepared(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "repository/main/raw").mkdir()
    for number in range(4):
        make_video(
            tmp_path / f"repository/main/raw/{number}.mp4",
            pts=constant_rate_pts(Fraction(30), 6),
            timebase=Fraction(1, 30),
            first_number=10 * number,
        )
    out = tmp_path / "prepared"
    assert prepare_without_warning(f"{REPOSITORY}/raw", out, runner="inline").videos_added == 4
    assert [read_number(video[0]) for video in shortgop.open(out)] == [0, 10, 20, 30]
    assert any("cursor=" in page for page in hub.pages), "a listing has several pages"
    again = prepare_without_warning([f"{REPOSITORY}/raw/2.mp4"], out, runner="inline")
    assert (again.videos_added, again.already_there) == (0, 1)


def test_a_lerobot_dataset_on_the_hub_is_the_one_on_the_disk(hub: HubServer, tmp_path: Path) -> None:
    assert hub.endpoint
    root = write_lerobot(tmp_path / "repository/main/robot", [7, 5])
    for place, out in ((root, tmp_path / "of_disk"), (f"{REPOSITORY}/robot", tmp_path / "of_hub")):
        assert prepare_without_warning(place, out, runner="inline").videos_added == 4
    of_disk, of_hub = shortgop.open(tmp_path / "of_disk"), shortgop.open(tmp_path / "of_hub")
    assert of_hub.ids == of_disk.ids
    for video in of_hub:
        assert [read_number(frame) for frame in video] == [read_number(frame) for frame in of_disk[video.id]]
    clips = shortgop.LeRobotClips(tmp_path / "of_hub", f"{REPOSITORY}/robot")
    assert clips.rows["action"].tolist() == shortgop.LeRobotClips(tmp_path / "of_disk", root).rows["action"].tolist()


def test_the_token_does_not_go_along_where_a_listing_is_led_elsewhere(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_topsecret")
    hub.listing_at = f"{hub.files.root}/listing"
    with pytest.raises(PermissionError):
        list(storage_at(REPOSITORY).files(""))
    assert hub.files.requests
    assert hub.files.tokens == []


def test_a_listing_whose_answer_is_cut_is_asked_for_again(hub: HubServer) -> None:
    hub.cut = 2
    assert list(storage_at(f"{REPOSITORY}/set #1").files("shards"))
    assert hub.cut == 0


def test_what_is_no_token_is_not_printed(no_token: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert no_token is None
    monkeypatch.setenv("HF_TOKEN", "hf_topsecret\nhf_other")
    with pytest.raises(ToolError, match="HF_TOKEN has blanks or other characters that no token has") as caught:
        list(storage_at(REPOSITORY).files(""))
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize("way", ["HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME"])
def test_the_token_goes_to_the_hub_and_to_no_other_server(
    way: str, three_videos: Path, tmp_path: Path, no_token: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert no_token is None
    (tmp_path / "token").write_text("hf_topsecret\n")
    monkeypatch.setenv(
        way, {"HF_TOKEN": "hf_topsecret", "HF_TOKEN_PATH": str(tmp_path / "token"), "HF_HOME": str(tmp_path)}[way]
    )
    with hub_server({"main": three_videos}, token="hf_topsecret") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        assert len(shortgop.open(REPOSITORY)[0][:2]) == 2
    assert server.files.requests
    assert server.files.tokens == []


def test_who_may_not_read_is_told_which_token_was_tried(
    three_videos: Path, no_token: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert no_token is None
    with hub_server({"main": three_videos}, token="hf_topsecret") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        with pytest.raises(shortgop.DatasetError, match="answered 401; tried no token .*`hf auth login`"):
            shortgop.open(REPOSITORY)
        monkeypatch.setenv("HF_TOKEN", "hf_12345678")
        for tried in (lambda: shortgop.open(REPOSITORY), lambda: prepare_without_warning(REPOSITORY, "out")):
            with pytest.raises((shortgop.DatasetError, UsageError), match="the token hf_12... from HF_TOKEN") as caught:
                tried()
            assert "345678" not in str(caught.value)


def test_an_endpoint_that_is_no_server_is_named(no_token: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert no_token is None
    monkeypatch.setenv("HF_ENDPOINT", "mirror")
    with pytest.raises(ToolError, match="HF_ENDPOINT is 'mirror', which is no server"):
        shortgop.open(REPOSITORY)
