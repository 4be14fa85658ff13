"""Storage in Azure, as Azurite speaks it: what every storage does, and what Azure does otherwise than S3."""

from __future__ import annotations

import random
import tracemalloc
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import azurite
import shortgop
from dataset_places import Places, copied
from flaky_proxy import FLAKY, Faults, FlakyProxy, flaky_proxy
from root_race import race
from shortgop.errors import OutputError
from shortgop.storage.interface import Storage, Stored
from shortgop.storage.locate import storage_at
from shortgop.storage.network import PIECE_BYTES, NetworkOptions
from shortgop.storage.objects import ObjectStorage
from shortgop.storage.opened_objects import TAIL_BYTES
from storage_conformance import StorageConformance
from synthetic import read_number

pytestmark = pytest.mark.skipif(azurite.program() is None, reason=azurite.HOW_TO_GET_IT)

QUICK = NetworkOptions(first_backoff_seconds=0.01, retries=12)
LARGE_BYTES = 3 * PIECE_BYTES


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with azurite.azurite(tmp_path_factory.mktemp("azurite")) as address:
        yield address


@pytest.fixture(scope="module")
def _proxy(server: str) -> Iterator[FlakyProxy]:
    with flaky_proxy(server) as proxy:
        yield proxy


@pytest.fixture
def proxy(_proxy: FlakyProxy) -> FlakyProxy:
    _proxy.faults(Faults())
    _proxy.forget()
    return _proxy


def new_url(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name in azurite.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return f"az://{azurite.CONTAINER}/{uuid.uuid4().hex}"


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an az:// URL below which there is nothing, with the environment that plain az:// URLs want."""
    return new_url(azurite.with_key(server), monkeypatch)


@pytest.fixture
def place(proxy: FlakyProxy, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    """Return an empty place behind the proxy, which counts requests and fails none."""
    place = storage_at(new_url(azurite.with_key(proxy.endpoint), monkeypatch), network=QUICK)
    assert isinstance(place, ObjectStorage)
    return place


class TestAzure(StorageConformance):
    @pytest.fixture
    def storage(self, url: str) -> Storage:
        return storage_at(url)


class TestFlakyAzure(StorageConformance):
    @pytest.fixture
    def storage(self, place: ObjectStorage, proxy: FlakyProxy) -> Storage:
        proxy.faults(FLAKY)
        return place


def test_two_processes_race_for_the_root(url: str) -> None:
    assert race(10, Places(lambda: storage_at(f"{url}/{uuid.uuid4().hex}"))).rounds == 10


def test_a_large_file_of_the_disk_is_one_put(place: ObjectStorage, proxy: FlakyProxy, tmp_path: Path) -> None:
    """A copy inside Azure may go on after it was answered: others would see an empty file, and it fails if its source
    is removed."""
    file = tmp_path / "file"
    file.write_bytes(bytes(LARGE_BYTES))
    assert place.put_new_file("manifest/000001.zip", file)
    assert proxy.counts() == {"PUT": 1}
    assert place.counts().bytes_written == LARGE_BYTES
    proxy.forget()
    assert place.put_new_file("manifest/000001.zip", file)
    assert proxy.counts()["PUT"] == 1
    file.write_bytes(bytes(LARGE_BYTES - 1) + b"x")
    assert not place.put_new_file("manifest/000001.zip", file)


def test_a_large_file_of_the_disk_is_not_read_into_memory(place: ObjectStorage, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(LARGE_BYTES))
    place.find("a")  # connects
    tracemalloc.start()
    try:
        assert place.put_new_file("manifest/000001.zip", file)
        assert tracemalloc.get_traced_memory()[1] < PIECE_BYTES
    finally:
        tracemalloc.stop()


def test_the_lost_answer_of_a_large_put(place: ObjectStorage, proxy: FlakyProxy, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(LARGE_BYTES))
    proxy.faults(Faults(lost_puts=1))
    assert place.put_new_file("manifest/000001.zip", file)


def test_a_large_put_may_take_as_long_as_its_pieces(url: str, proxy: FlakyProxy, tmp_path: Path) -> None:
    """A piece is allowed ten times as long as an answer, here 2 s."""
    file = tmp_path / "file"
    file.write_bytes(bytes(LARGE_BYTES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_STORAGE_ENDPOINT", f"{proxy.endpoint}/{azurite.ACCOUNT}")
        place = storage_at(url, network=NetworkOptions(timeout_seconds=0.2, retries=0))
        proxy.faults(Faults(latency_seconds=3.0))
        assert place.put_new_file("manifest/000001.zip", file)


def test_the_end_of_a_file_and_what_it_is_are_of_one_version(
    place: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure has no ranges that are counted from the end, so the start says how long a file is, and another request
    brings the end."""
    other = storage_at(place.url)
    long, longer = bytes(TAIL_BYTES) + b"one", bytes(2 * TAIL_BYTES) + b"three"
    place.put_new("zarr.json", long)
    stored = place._bucket._stored

    def asked_and_then_replaced(meta: Any) -> Stored:
        found = stored(meta)
        if found.num_bytes == len(long):
            assert other.replace("zarr.json", longer, found.version)
        return found

    monkeypatch.setattr(place._bucket, "_stored", asked_and_then_replaced)
    with place.open("zarr.json") as file:
        assert file.stored == other.find("zarr.json")
        assert file.read(len(longer) - 5, len(longer)) == b"three"
        assert file.read(0, len(longer)) == longer


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (0, {"GET": 1, "HEAD": 1}),
        (1, {"GET": 1}),
        (TAIL_BYTES, {"GET": 1}),
        (TAIL_BYTES + 1, {"GET": 2}),
        (3 * TAIL_BYTES, {"GET": 2}),
    ],
)
def test_an_opened_file_takes_one_request_and_a_long_one_two(
    place: ObjectStorage, proxy: FlakyProxy, num_bytes: int, expected: dict[str, int]
) -> None:
    content = random.Random(0).randbytes(num_bytes)
    place.put_new("zarr.json", content)
    proxy.forget()
    before = place.counts().requests
    with place.open("zarr.json") as file:
        assert file.read(max(0, num_bytes - TAIL_BYTES), num_bytes) == content[-TAIL_BYTES:]
        assert file.stored.num_bytes == num_bytes
    assert proxy.counts() == expected
    assert place.counts().requests - before == sum(expected.values())


def test_a_small_dataset_is_opened_with_three_requests(three_videos: Path, place: Storage, proxy: FlakyProxy) -> None:
    copied(three_videos, place)
    proxy.forget()
    dataset = shortgop.open(place.url)
    assert proxy.counts() == {"GET": 3}
    assert read_number(dataset["film.mkv"][3]) == 3


def test_a_token_in_place_of_the_key(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = storage_at(new_url(azurite.with_token(server), monkeypatch))
    file = tmp_path / "file"
    file.write_bytes(bytes(LARGE_BYTES))
    assert place.put_new_file("a", file)
    assert place.read("a", LARGE_BYTES - 3) == bytes(3)
    assert [each.key for each in place.files("")] == ["a"]


@pytest.mark.usefixtures("url")
def test_a_container_that_is_not_there() -> None:
    storage = storage_at("az://nobody/dataset")
    with pytest.raises(FileNotFoundError, match="there is no such bucket"):
        list(storage.files(""))
    with pytest.raises(OutputError, match="there is no such bucket; make the bucket first, or check its name"):
        storage.put_new("a", b"abc")


def test_a_wrong_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    with pytest.raises(PermissionError, match="403 AuthorizationFailure; tried Azure's settings"):
        storage_at(url).read("a")
