"""Stores that are far away, and stores that do not answer any more: what a reader makes of them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import shortgop
from dataset_places import copied
from datasets import current_manifest, make_dataset
from flaky_proxy import Faults, FlakyProxy
from shortgop.manifests.operations.copying import copy_videos
from shortgop.readers import open_dataset as opening
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at
from shortgop.storage.network import NetworkOptions
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
NEAR, FAR = Faults(), Faults(latency_seconds=0.1)


@pytest.fixture(scope="module")
def far_apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset of two short videos, with one of noise between them in their shard."""
    root = tmp_path_factory.mktemp("far apart")
    for number, name in enumerate(("a.mp4", "c.mp4")):
        make_video(root / name, pts=constant_rate_pts(RATE, 16), timebase=1 / RATE, first_number=100 * number)
    noise = np.random.default_rng(0)
    with av.open(root / "b.mp4", "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"crf": "1", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for _ in range(32):
            picture = noise.integers(0, 256, (240, 320, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        container.mux(stream.encode())
    make_dataset([root / f"{name}.mp4" for name in "abc"], root / "three shards", crf=1)
    # The noise is a unit by itself. A copy has one shard, in the order of the videos.
    copy_videos([DiskStorage(root / "three shards")], DiskStorage(root / "dataset"))
    gops = current_manifest(root / "dataset").gops
    # A connection to S3 carries as much in 35 to 45 ms. A server that is near takes less, also on a busy machine.
    assert 3.2e6 < gops.offset[-1] - gops.offset[0] - gops.length[0] < 4e6
    return root / "dataset"


@pytest.mark.first_case_short
@pytest.mark.parametrize(("distance", "requests"), [(NEAR, 2), (FAR, 1)])
def test_what_opening_took_decides_which_gaps_are_read_over(
    far_apart: Path, proxied_url: str, s3_proxy: FlakyProxy, distance: Faults, requests: int
) -> None:
    """In 100 ms a connection carries more than what lies between the two GOPs, and in what the server takes less."""
    copied(far_apart, storage_at(proxied_url))
    s3_proxy.faults(distance)

    def requests_of_a_new_dataset() -> int:
        dataset = shortgop.open(proxied_url)
        s3_proxy.forget()
        batch = dataset.get_clips([("a.mp4", [3]), ("c.mp4", [5])])
        assert [read_number(frame) for frame in batch.data.flatten(0, 1)] == [3, 105]
        return len(s3_proxy.requests())

    # Where the machine is busy, a server that is near may take long as well, now and then.
    tries = 20 if distance is NEAR else 1
    assert any(requests_of_a_new_dataset() == requests for _ in range(tries))


def test_a_store_that_does_not_come_back_is_an_error_that_says_what_was_read(
    far_apart: Path, proxied_url: str, s3_proxy: FlakyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(far_apart, storage_at(proxied_url))
    monkeypatch.setattr(
        opening,
        "network_of",
        lambda *_: NetworkOptions(retries=2, first_backoff_seconds=0.01, throttled_seconds=0),
    )
    dataset = shortgop.open(proxied_url)
    s3_proxy.faults(Faults(statuses=1000, status=503))
    s3_proxy.forget()
    with pytest.raises(shortgop.UnreadableDataError, match="answered 503 SlowDown") as caught:
        dataset["c.mp4"][3]
    assert [each.status for each in s3_proxy.requests()] == [503] * 3
    manifest = current_manifest(far_apart)
    start = int(manifest.gops.offset[-1])
    stop = start + int(manifest.gops.length[-1])
    url = f"{proxied_url}/shards/{manifest.shards.name.text(0)}"
    assert (caught.value.file, caught.value.byte_range) == (url, (start, stop))
    assert url in str(caught.value)
    assert f"bytes {start} to {stop}" in str(caught.value)


def test_clips_that_are_out_of_reach_are_not_skipped(far_apart: Path, proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """With credentials that have expired 100 intact clips were replaced by others, or tried to be, before training
    ended; where a server says nothing that takes hours."""
    copied(far_apart, storage_at(proxied_url))
    tried: list[Exception] = []

    def answers_again(error: Exception, _: int) -> None:
        tried.append(error)
        s3_proxy.faults(NEAR)

    skipping, deciding = (
        shortgop.ClipDataset(proxied_url, shortgop.RandomClips(1), videos=["a.mp4", "c.mp4"], on_error=on_error)
        for on_error in ("skip", answers_again)
    )
    expired = Faults(statuses=1000, status=403)
    s3_proxy.faults(expired)
    with pytest.raises(shortgop.UnreadableDataError, match="403 AccessDenied"):
        skipping.__getitems__([0, 1])
    assert skipping.skipped == 0
    # A function of the user's may go on.
    with pytest.warns(shortgop.DatasetWarning, match="draw 0 is skipped, draw 1 comes in its place"):
        items = deciding.__getitems__([0, 1])
    assert [item["draw"] for item in items] == [1, 1]
    assert [type(error) for error in tried] == [shortgop.UnreadableDataError]
