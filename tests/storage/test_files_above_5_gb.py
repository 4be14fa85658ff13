"""Files of more than S3 copies in one request: they get their names by a copy in parts. Here that is 9 MiB."""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import NoCredentialsError

from s3_uploads import unfinished_uploads
from shortgop.errors import OutputError
from shortgop.storage import copies_in_parts, objects
from shortgop.storage.connections import has_boto3
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at

pytestmark = pytest.mark.long

KEY = "manifest/000001.zip"
MIB = 1 << 20
# The least that a part has that is not the last one.
PART_BYTES = 5 * MIB


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_in_parts, "MAX_REQUEST_BYTES", 9 * MIB)
    monkeypatch.setattr(copies_in_parts, "_PART_BYTES", PART_BYTES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two parts, and a few bytes in a third."""
    path = tmp_path / "file"
    path.write_bytes(random.Random(1).randbytes(2 * PART_BYTES + 7))
    return path


@pytest.fixture
def store(s3_url: str) -> Storage:
    return storage_at(s3_url)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The requests of boto3 that are made from now on: each operation, with its parameters."""
    requests: list[tuple[str, dict[str, Any]]] = []
    client = boto3.client("s3")

    def note(params: dict[str, Any], model: Any, **_: Any) -> None:
        requests.append((model.name, params))

    client.meta.events.register("before-parameter-build.s3.*", note)
    monkeypatch.setattr(copies_in_parts, "s3_client", lambda: client)
    return requests


def answering(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Have `answer` called before an upload to the key of the file is completed."""
    client = boto3.client("s3")

    def before(params: dict[str, Any], **_: Any) -> None:
        if params["Key"].endswith(KEY):
            answer(params)

    client.meta.events.register("before-parameter-build.s3.CompleteMultipartUpload", before)
    monkeypatch.setattr(copies_in_parts, "s3_client", lambda: client)


def test_a_long_file_gets_its_name_by_a_copy_in_parts(
    store: Storage, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = recorded(monkeypatch)
    assert store.put_new_file(KEY, file)
    assert store.read(KEY) == file.read_bytes()
    copied = sorted(params["CopySourceRange"] for name, params in requests if name == "UploadPartCopy")
    assert copied == ["bytes=0-5242879", "bytes=10485760-10485766", "bytes=5242880-10485759"]
    # Neither what was uploaded nor what conditions were tried on is left.
    assert [each.key for each in store.files("")] == [KEY]
    assert unfinished_uploads(store.url) == []


def test_a_shorter_one_does_not(store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = recorded(monkeypatch)
    (tmp_path / "file").write_bytes(bytes(9 * MIB))
    assert store.put_new_file(KEY, tmp_path / "file")
    assert requests == []


def test_a_taken_name_stays_as_it_is(store: Storage, file: Path, tmp_path: Path) -> None:
    assert store.put_new_file(KEY, file)
    # The same content may be there because an answer was lost.
    assert store.put_new_file(KEY, file)
    other = tmp_path / "other"
    other.write_bytes(bytes(2 * PART_BYTES + 7))
    assert not store.put_new_file(KEY, other)
    assert store.read(KEY) == file.read_bytes()
    assert [each.key for each in store.files("")] == [KEY]


def test_who_takes_the_name_meanwhile_keeps_it(store: Storage, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda _: store.put_new(KEY, b"faster"))
    assert not store.put_new_file(KEY, file)
    assert store.read(KEY) == b"faster"
    assert unfinished_uploads(store.url) == []


def test_of_two_at_the_same_time_one_wins(store: Storage, file: Path, tmp_path: Path) -> None:
    files = [file, tmp_path / "other"]
    files[1].write_bytes(random.Random(2).randbytes(2 * PART_BYTES + 7))
    won: dict[int, bool] = {}

    def put(number: int) -> None:
        won[number] = storage_at(store.url).put_new_file(KEY, files[number])

    threads = [threading.Thread(target=put, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won.values()) == [False, True]
    (winner,) = [number for number, has_won in won.items() if has_won]
    assert store.read(KEY) == files[winner].read_bytes()


# What cannot be done is said before anything is sent


def nothing_was_sent(store: Storage) -> bool:
    return not [*store.files("")] and store.counts().bytes_written == 0


def test_without_boto3(store: Storage, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "has_boto3", lambda: False)
    said = (
        rf"cannot write {store.place(KEY)}: it has 0\.0 GB, and more than 5 GB take boto3: `pip install shortgop\[s3\]`"
    )
    with pytest.raises(OutputError, match=said):
        store.put_new_file(KEY, file)
    assert nothing_was_sent(store)


def test_has_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_boto3()
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert not has_boto3()


def test_a_server_that_passes_over_the_condition(store: Storage, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = boto3.client("s3")
    client.meta.events.register(
        "before-parameter-build.s3.CompleteMultipartUpload", lambda params, **_: params.pop("IfNoneMatch")
    )
    monkeypatch.setattr(copies_in_parts, "s3_client", lambda: client)
    with pytest.raises(
        OutputError, match="this server passes over the condition that the file is new; write to a place"
    ):
        store.put_new_file(KEY, file)
    assert nothing_was_sent(store)


def test_without_credentials(store: Storage, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise NoCredentialsError

    client = boto3.client("s3")
    client.meta.events.register("before-send.s3", refuse)
    monkeypatch.setattr(copies_in_parts, "s3_client", lambda: client)
    with pytest.raises(
        OutputError, match="Unable to locate credentials, which boto3 needs for files of more than 5 GB"
    ):
        store.put_new_file(KEY, file)
    assert nothing_was_sent(store)


def test_azure_takes_no_such_file(file: Path) -> None:
    place = storage_at("az://container/dataset")
    with pytest.raises(OutputError, match="more than 5 GB cannot be put into Azure on the condition that it is new"):
        place.put_new_file(KEY, file)


# What fails later


def test_an_answer_that_says_to_try_again(store: Storage, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Amazon's if two requests to one key come at the same time."""
    from botocore.exceptions import ClientError

    answers = ["ConditionalRequestConflict", "ConditionalRequestConflict"]

    def refuse(_: dict[str, Any]) -> None:
        if answers:
            said = {"Error": {"Code": answers.pop()}, "ResponseMetadata": {"HTTPStatusCode": 409}}
            raise ClientError(said, "CompleteMultipartUpload")

    answering(monkeypatch, refuse)
    assert store.put_new_file(KEY, file)
    assert store.read(KEY) == file.read_bytes()
    assert unfinished_uploads(store.url) == []


def test_another_error_says_what_the_server_answered(
    store: Storage, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError

    def refuse(_: dict[str, Any]) -> None:
        said = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
        raise ClientError(said, "CompleteMultipartUpload")

    answering(monkeypatch, refuse)
    with pytest.raises(OutputError, match="the server answered 403 AccessDenied to CompleteMultipartUpload; give your"):
        store.put_new_file(KEY, file)
    assert [*store.files("")] == []
    assert unfinished_uploads(store.url) == []


# Uploads of 10,000 pieces


def test_pieces_of_a_file_of_many_pieces_are_longer(
    store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies_in_parts, "MAX_REQUEST_BYTES", 1 << 40)
    file = tmp_path / "file"
    file.write_bytes(random.Random(3).randbytes(25 * MIB))
    needed = []
    for most, expected in ((10_000, 4), (2, 2)):
        monkeypatch.setattr(objects, "_MAX_PIECES", most)
        storage = storage_at(f"{store.url}/{most}")
        assert storage.put_new_file(KEY, file)
        assert storage.read(KEY) == file.read_bytes()
        needed.append((storage.counts().requests, expected))
    # All other requests are the same.
    assert needed[0][0] - needed[1][0] == needed[0][1] - needed[1][1]
