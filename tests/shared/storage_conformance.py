"""What every storage does, sentence by sentence of `storage/interface.py`.

Each kind of storage inherits these tests, and says by the fixture `storage` what it is: an empty place whose root
exists.
"""

from __future__ import annotations

import concurrent.futures
import pickle
import time
from pathlib import Path

import pytest

from shortgop.errors import DatasetBusyError
from shortgop.storage.interface import Storage


def keys(storage: Storage, folder: str = "") -> list[str]:
    return sorted(each.key for each in storage.files(folder))


class StorageConformance:
    large = bytes(range(256)) * 72_000  # more than two pieces of 8 MiB

    # Places

    def test_a_place_is_named_by_its_url(self, storage: Storage) -> None:
        assert not storage.url.endswith("/")
        assert storage.place("a/b") == f"{storage.url}/a/b"
        assert str(storage) == storage.url

    def test_a_pickle_holds_the_place_alone(self, storage: Storage) -> None:
        storage.put_new("a", b"abc")
        content = pickle.dumps(storage)
        again = pickle.loads(content)
        assert (again.url, again.read("a")) == (storage.url, b"abc")
        assert again == storage
        assert hash(again) == hash(storage)
        assert len(content) < 1000

    # Reading

    def test_a_file_is_found_with_its_length_and_time(self, storage: Storage) -> None:
        storage.put_new("shards/a.shard", b"abc")
        found = storage.find("shards/a.shard")
        assert found is not None
        assert (found.key, found.num_bytes) == ("shards/a.shard", 3)
        assert abs(found.modified_ns / 1e9 - time.time()) < 60

    def test_what_is_not_there_is_not_found(self, storage: Storage) -> None:
        storage.put_new("shards/a.shard", b"abc")
        assert storage.find("b") is None
        assert storage.find("shards/a.shard/b") is None

    def test_a_folder_is_no_file(self, storage: Storage) -> None:
        storage.put_new("shards/a.shard", b"abc")
        assert storage.find("shards") is None

    def test_files_below_a_folder(self, storage: Storage) -> None:
        for key in ("zarr.json", "parts/u1.zip", "parts/u2.zip", "parts-of-others/u3.zip"):
            storage.put_new(key, key.encode())
        assert keys(storage, "parts") == ["parts/u1.zip", "parts/u2.zip"]
        assert len(keys(storage)) == 4
        assert keys(storage, "shards") == []
        assert {each.key: each for each in storage.files("")}["zarr.json"] == storage.find("zarr.json")

    def test_the_lock_and_temporary_files_are_not_listed(self, storage: Storage) -> None:
        storage.put_new("a", b"abc")
        with storage.lock():
            upload = storage.start("shards/u1", ".shard")
            upload.write(b"abc")
            assert keys(storage) == ["a"]
            upload.discard()

    def test_a_range_is_read(self, storage: Storage) -> None:
        storage.put_new("a", b"0123456789")
        assert storage.read("a") == b"0123456789"
        assert storage.read("a", 3) == b"3456789"
        assert storage.read("a", 3, 5) == b"34"
        assert storage.read("a", 3, 10, again=True) == b"3456789"
        assert storage.read("a", 10) == b""

    def test_an_empty_file_is_read(self, storage: Storage) -> None:
        storage.put_new("a", b"")
        assert storage.read("a") == b""
        with storage.open("a") as file:
            assert file.stored.num_bytes == 0

    @pytest.mark.parametrize(("start", "stop"), [(0, 11), (9, 11), (10, 11), (20, 30)])
    def test_a_file_that_ends_before_the_range_does(self, storage: Storage, start: int, stop: int) -> None:
        storage.put_new("a", b"0123456789")
        with pytest.raises(EOFError):
            storage.read("a", start, stop)
        with pytest.raises(EOFError):
            storage.read_ranges("a", [(0, 1), (start, stop)])
        with storage.open("a") as file, pytest.raises(EOFError):
            file.read(start, stop)

    def test_what_is_not_there_cannot_be_read(self, storage: Storage) -> None:
        for read in (storage.read, lambda key: storage.read(key, 1, 2), lambda key: storage.read_ranges(key, [(0, 1)])):
            with pytest.raises(FileNotFoundError):
                read("a")
        with pytest.raises(FileNotFoundError), storage.open("a"):
            pass

    def test_ranges_come_in_the_order_that_was_asked_for(self, storage: Storage) -> None:
        storage.put_new("a", bytes(range(256)))
        ranges = [(200, 256), (0, 3), (5, 9), (5, 9), (3, 200)]
        assert storage.read_ranges("a", ranges) == [bytes(range(start, stop)) for start, stop in ranges]
        assert storage.read_ranges("a", []) == []

    def test_a_large_file_comes_whole(self, storage: Storage) -> None:
        storage.put_new("a", self.large)
        assert storage.read("a") == self.large
        assert storage.read("a", 5) == self.large[5:]
        stop = len(self.large) - 7
        assert storage.read_ranges("a", [(1, stop), (stop, stop + 7)]) == [self.large[1:stop], self.large[-7:]]

    def test_an_opened_file_is_read_in_pieces(self, storage: Storage) -> None:
        storage.put_new("a", self.large)
        end = len(self.large)
        with storage.open("a") as file:
            assert file.stored == storage.find("a")
            assert file.read(end - 9, end) == self.large[-9:]
            ranges = [(100, 200), (150, 300), (5_000_000, 5_000_010), (end - 300_000, end - 1)]
            assert [file.read(*each) for each in ranges] == [self.large[start:stop] for start, stop in ranges]
            file.will_need(ranges)
            assert [file.read(*each) for each in ranges] == [self.large[start:stop] for start, stop in ranges]

    def test_saying_what_is_needed_soon_is_never_an_error(self, storage: Storage) -> None:
        storage.will_need("a", 0, 100)

    def test_many_threads_may_read(self, storage: Storage) -> None:
        storage.put_new("a", self.large)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            read = list(threads.map(lambda start: storage.read("a", start, start + 1000), range(0, 64_000, 1000)))
        assert b"".join(read) == self.large[:64_000]

    # Writing

    def test_the_root_is_made_more_than_once(self, storage: Storage) -> None:
        storage.make()
        storage.make()

    def test_a_key_is_taken_once(self, storage: Storage) -> None:
        assert storage.put_new("a/b", b"abc")
        assert not storage.put_new("a/b", b"abd")
        assert not storage.put_new("a/b", b"abcd")
        assert storage.read("a/b") == b"abc"

    def test_the_same_content_may_be_put_again(self, storage: Storage) -> None:
        assert storage.put_new("a", b"abc")
        assert storage.put_new("a", b"abc")

    @pytest.mark.parametrize("large", [False, True])
    def test_a_file_of_the_disk_is_put(self, storage: Storage, tmp_path: Path, *, large: bool) -> None:
        content = self.large if large else b"abc"
        file = tmp_path / "some file"
        file.write_bytes(content)
        assert storage.put_new_file("parts/u1.zip", file)
        assert storage.put_new_file("parts/u1.zip", file)
        assert storage.read("parts/u1.zip") == content
        file.write_bytes(content[:-1] + b"x")
        assert not storage.put_new_file("parts/u1.zip", file)
        assert storage.read("parts/u1.zip") == content
        assert keys(storage) == ["parts/u1.zip"]
        assert file.exists()

    def test_a_file_is_replaced_if_it_is_still_the_one_that_was_read(self, storage: Storage) -> None:
        storage.put_new("zarr.json", b"one")
        first = storage.find("zarr.json")
        assert first is not None
        assert storage.replace("zarr.json", b"two", first.version)
        second = storage.find("zarr.json")
        assert second is not None
        assert second.version != first.version
        assert not storage.replace("zarr.json", b"three", first.version)
        assert storage.read("zarr.json") == b"two"
        assert storage.replace("zarr.json", b"three", second.version)

    def test_no_version_means_that_there_is_no_file(self, storage: Storage) -> None:
        assert storage.replace("zarr.json", b"one", None)
        assert not storage.replace("zarr.json", b"two", None)
        assert storage.read("zarr.json") == b"one"

    def test_what_was_removed_is_not_replaced(self, storage: Storage) -> None:
        storage.put_new("zarr.json", b"one")
        found = storage.find("zarr.json")
        assert found is not None
        storage.remove("zarr.json")
        assert not storage.replace("zarr.json", b"two", found.version)
        assert storage.find("zarr.json") is None

    @pytest.mark.parametrize("pieces", [[], [b"abc", b"", b"defg"], [large[:5_000_000], large[5_000_000:]], [large]])
    def test_an_upload_appears_when_it_is_committed(self, storage: Storage, pieces: list[bytes]) -> None:
        upload = storage.start("shards/u1-0", ".shard")
        for piece in pieces:
            upload.write(piece)
        assert upload.num_bytes == sum(map(len, pieces))
        assert keys(storage) == []
        key = upload.commit()
        assert key.startswith("shards/u1-0-")
        assert key.endswith(".shard")
        assert keys(storage) == [key]
        assert storage.read(key) == b"".join(pieces)
        upload.discard()
        assert keys(storage) == [key]

    def test_uploads_of_different_content_have_different_keys(self, storage: Storage) -> None:
        found = []
        for content in (b"abc", b"abd"):
            upload = storage.start("shards/u1-0", ".shard")
            upload.write(content)
            found.append(upload.commit())
        assert [storage.read(key) for key in found] == [b"abc", b"abd"]

    def test_the_end_of_an_upload_is_taken_back(self, storage: Storage) -> None:
        upload = storage.start("shards/u1", ".shard")
        upload.write(b"abcdefg")
        assert upload.cut(3) == 3
        upload.write(b"x")
        assert upload.cut(4) == 4
        assert storage.read(upload.commit()) == b"abcx"

    def test_a_cut_says_how_long_the_file_is_now(self, storage: Storage) -> None:
        upload = storage.start("shards/u1", ".shard")
        upload.write(self.large)
        length = upload.cut(10)
        assert 10 <= length == upload.num_bytes
        upload.write(b"x")
        assert storage.read(upload.commit()) == self.large[:length] + b"x"

    @pytest.mark.parametrize("content", [b"", b"abc", large])
    def test_a_discarded_upload_leaves_nothing(self, storage: Storage, content: bytes) -> None:
        upload = storage.start("shards/u1", ".shard")
        upload.write(content)
        upload.discard()
        upload.discard()
        assert keys(storage) == []

    def test_files_are_removed(self, storage: Storage) -> None:
        storage.put_new("a", b"abc")
        storage.remove("a")
        storage.remove("a")
        storage.remove("never/there")
        assert keys(storage) == []

    def test_folders_are_removed_with_all_that_is_in_them(self, storage: Storage) -> None:
        for key in ("shards/1", "shards/2", "shards2/1", "zarr.json"):
            storage.put_new(key, b"abc")
        storage.remove("shards")
        assert keys(storage) == ["shards2/1", "zarr.json"]

    def test_what_was_taken_is_put_back_or_removed(self, storage: Storage) -> None:
        storage.put_new("a", b"abc")
        for _ in range(2):
            taken = storage.take("a")
            assert taken is not None
            taken.put_back()
            assert storage.read("a") == b"abc"
        taken = storage.take("a")
        assert taken is not None
        taken.remove()
        assert storage.find("a") is None
        assert storage.take("a") is None

    def test_scratch_files_are_on_this_host(self, storage: Storage) -> None:
        path = storage.scratch("folder")
        path.mkdir()
        (path / "file").write_bytes(b"abc")
        assert path != storage.scratch("folder")
        assert keys(storage) == []
        (path / "file").unlink()
        path.rmdir()

    def test_one_job_writes_at_a_time(self, storage: Storage) -> None:
        with storage.lock():
            with pytest.raises(DatasetBusyError, match="another job is writing to") as caught, storage.lock():
                pass
            assert storage.url in str(caught.value)
            assert "process" in str(caught.value)
        with storage.lock():
            pass

    def test_an_error_ends_the_lock(self, storage: Storage) -> None:
        with pytest.raises(RuntimeError), storage.lock():
            raise RuntimeError
        with storage.lock():
            pass
