"""How many requests a dataset in S3 takes: as few as its files allow."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shortgop
from datasets import make_dataset
from example_manifests import video
from flaky_proxy import FlakyProxy
from layers_everywhere import layers_everywhere
from shortgop.cli import app
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.units_of_work.units import Item, plan_units
from shortgop.jobs.working.work import run_unit
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_current, timeline_of
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from source_arguments import find_sources
from synthetic import constant_rate_pts, make_video

RATE = Fraction(25)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for number, name in enumerate(("a.mp4", "b.mp4")):
        make_video(folder / name, pts=constant_rate_pts(RATE, 40), timebase=1 / RATE, first_number=100 * number)
    return folder


@pytest.fixture
def dataset(sources: Path, proxied_url: str, s3_proxy: FlakyProxy) -> Storage:
    place = storage_at(proxied_url)
    make_dataset([sources / "a.mp4"], place)
    s3_proxy.forget()
    return place


def files(proxy: FlakyProxy, dataset: Storage) -> list[str]:
    """The requests for objects of a dataset so far, in the order in which they came, each as its method and the folder
    of its object."""
    prefix = f"{dataset.url.rpartition('/')[2]}/"
    found = [f"{each.method} {each.key.split('/')[1]}" for each in proxy.requests() if each.key.startswith(prefix)]
    proxy.forget()
    return found


def test_a_small_dataset_is_opened_with_three_requests(dataset: Storage, s3_proxy: FlakyProxy) -> None:
    opened = shortgop.open(dataset.url)
    assert files(s3_proxy, dataset) == ["GET zarr.json", "GET manifest", "GET shards"]
    opened["a.mp4"][3]
    assert files(s3_proxy, dataset) == ["GET shards"]
    # Frames of one GOP, and those of two that lie side by side.
    opened["a.mp4"].get_frames_at([3, 5, 20])
    assert files(s3_proxy, dataset) == ["GET shards"]


@pytest.mark.long
def test_a_long_snapshot_takes_a_request_for_each_eight_megabytes(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place, texts = storage_at(proxied_url), np.random.default_rng(0).bytes(20_000_000).hex()
    create(place, {})
    write_part(place, "long", video("a", attributes=json.dumps({"text": texts})))
    publish(place)
    s3_proxy.forget()
    assert len(open_current(place)[1].videos) == 1
    # The end of the file, which lists what is in it, and three pieces of 20 MB.
    assert Counter(files(s3_proxy, place)) == {"GET zarr.json": 1, "GET manifest": 4}


def test_each_layer_of_a_small_snapshot_takes_one_request(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place = storage_at(proxied_url)
    create(place, {})
    with layers_everywhere():
        for name in "abc":
            write_part(place, name, video(name))
            publish(place)
    s3_proxy.forget()
    assert len(open_current(place)[1].videos) == 3
    # The first one says which layers there are.
    assert Counter(files(s3_proxy, place)) == {"GET zarr.json": 1, "GET manifest": 1 + 3}


def test_what_info_shows_takes_three_requests(dataset: Storage, s3_proxy: FlakyProxy) -> None:
    assert CliRunner().invoke(app, ["info", dataset.url]).exit_code == 0
    assert files(s3_proxy, dataset) == ["GET zarr.json", "GET manifest", "GET shards"]


def test_a_unit_looks_for_its_part_and_puts_a_shard_and_a_part(
    sources: Path, dataset: Storage, s3_proxy: FlakyProxy
) -> None:
    (source,) = find_sources([str(sources / "b.mp4")])
    (unit,) = plan_units([Item(source, *identity_of(source.path))], profile_key="", done={}, shard_bytes=10**9)
    run_unit(dataset, unit, Options(Profile()), lambda _: None)
    # Another attempt at the unit may have ended before it, while it encoded, and just now.
    assert files(s3_proxy, dataset) == ["HEAD parts", "HEAD parts", "PUT shards", "HEAD parts", "PUT parts"]
    publish(dataset)
    assert len(files(s3_proxy, dataset)) <= 16


def test_publishing_nothing_takes_four_requests(dataset: Storage, s3_proxy: FlakyProxy) -> None:
    publish(dataset)
    assert files(s3_proxy, dataset) == ["GET manifest", "GET zarr.json", "GET manifest", "GET parts"]


def test_the_timeline_of_any_number_of_videos_takes_one_request(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place = storage_at(proxied_url)
    create(place, {})
    for name in "abcd":
        write_part(place, name, video(name))
    publish(place)
    root, manifest = open_current(place)
    s3_proxy.forget()
    assert len(timeline_of(place, root.snapshot or "", manifest, [0, 1, 3])) == 30
    assert files(s3_proxy, place) == ["GET manifest"]


def test_an_edit_takes_some_thirty_requests(dataset: Storage, s3_proxy: FlakyProxy) -> None:
    shortgop.annotate(dataset.url, {"a.mp4": {"label": 1}})
    found = files(s3_proxy, dataset)
    # Ten of them take the lock and release it, two ask for the kinds of columns before and after.
    assert len(found) <= 35
    assert [each for each in found if each.startswith("PUT") and not each.endswith((".tmp", ".lock"))] == [
        "PUT parts",
        "PUT manifest",
        "PUT zarr.json",
    ]


def test_a_job_without_anything_to_do_puts_nothing_but_its_lock_and_its_status(
    sources: Path, dataset: Storage, s3_proxy: FlakyProxy
) -> None:
    make_dataset([sources / "a.mp4"], dataset)
    found = files(s3_proxy, dataset)
    assert {each for each in found if each.startswith("PUT")} == {"PUT .tmp", "PUT .lock", "PUT .status.json"}
    # That it runs, and what the job before it wrote. On a slow machine it says more often that it runs.
    assert found.count("PUT .status.json") >= 2
    assert len(found) <= 60


def test_a_job_lists_parts_up_to_three_times(sources: Path, dataset: Storage, s3_proxy: FlakyProxy) -> None:
    """Each time takes a request for a thousand parts: docs/scale.md."""

    def listings() -> int:
        parts = f"{dataset.url.rpartition('/')[2]}/parts"
        found = [each for each in s3_proxy.requests() if "list-type" in each.query and each.key.startswith(parts)]
        s3_proxy.forget()
        return len(found)

    shortgop.annotate(dataset.url, {"a.mp4": {"label": 1}})
    assert listings() == 2
    make_dataset([sources / "a.mp4"], dataset)
    assert listings() == 1
    make_dataset([sources / "a.mp4", sources / "b.mp4"], dataset)
    assert listings() == 3
