"""The region of a bucket, and credentials that are in the files of the AWS tools while boto3 is not installed."""

from __future__ import annotations

import contextlib
import http.server
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import S3Store

from shortgop.errors import OutputError, ToolError
from shortgop.storage import connections
from shortgop.storage.connections import StoreRoot, bucket_region, connect, credentials_tried
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from shortgop.storage.network import NetworkOptions

SETTINGS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"),
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_DEFAULT_REGION"),
)


@pytest.fixture
def aws_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the AWS tools keep their files. There are none, and no settings in the environment but a region."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    # Nor is the machine asked for a role.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


@pytest.fixture
def without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)


@pytest.mark.usefixtures("without_boto3")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("credentials", "[default]\naws_access_key_id = abc\naws_secret_access_key = def\n"),
        ("config", "[default]\nregion = eu-west-1\ncredential_process = /bin/keys %s\n"),
        ("config", "[profile default]\nsso_session = team\n[sso-session team]\nsso_region = eu-west-1\n"),
    ],
)
def test_credentials_in_a_file_without_boto3(aws_folder: Path, name: str, content: str) -> None:
    (aws_folder / name).write_text(content)
    with pytest.raises(ToolError, match=rf"credentials in .*/{name} need boto3: `pip install shortgop\[s3\]`"):
        storage_at("s3://bucket/dataset").read("zarr.json")


@pytest.mark.usefixtures("without_boto3")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config", "[default]\nregion = eu-west-1\ns3 =\n    max_concurrent_requests = 20\n"),
        ("credentials", "[team]\naws_access_key_id = abc\naws_secret_access_key = def\n"),
        ("credentials", "no sections\n"),
        ("credentials", ""),
    ],
)
def test_files_without_credentials_of_the_default_profile_need_no_boto3(
    aws_folder: Path, name: str, content: str
) -> None:
    (aws_folder / name).write_text(content)
    connect(StoreRoot.of("s3://bucket/dataset"), NetworkOptions())
    assert "the role of this machine" in credentials_tried("s3")


@pytest.mark.usefixtures("without_boto3")
@pytest.mark.parametrize(
    ("name", "value", "tried"),
    [
        ("AWS_ACCESS_KEY_ID", "key1", "the key key1... from AWS_ACCESS_KEY_ID"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token", "the role of this machine"),
        ("AWS_SKIP_SIGNATURE", "true", "none (AWS_SKIP_SIGNATURE)"),
    ],
)
def test_what_the_environment_says_counts_more_than_files(
    aws_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, tried: str
) -> None:
    (aws_folder / "credentials").write_text("[default]\naws_access_key_id = abc\naws_secret_access_key = def\n")
    monkeypatch.setenv(name, value)
    assert not connections.uses_boto3()
    assert tried in credentials_tried("s3")


@contextlib.contextmanager
def amazon(asked: list[str], region: str, failures: int = 0) -> Iterator[str]:
    """A server that sends every request to another place, and says the region of the bucket, as Amazon's does. The
    first ones it does not answer."""

    class Redirecting(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            if len(asked) <= failures:
                self.send_error(503)
                return
            self.send_response(301)
            self.send_header("x-amz-bucket-region", region)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_user_without_a_home_has_no_files(aws_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert aws_folder.is_dir()
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "~")
    assert [file for file in connections.aws_files() if file.exists()] == []


def test_the_region_of_a_bucket_is_asked_for(s3_endpoint: str) -> None:
    assert bucket_region(s3_endpoint, "corpus") == "us-east-1"


@pytest.mark.usefixtures("aws_folder")
def test_a_region_is_not_guessed_where_amazon_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess stayed for the process: all that it asked for later was said to lie in another region."""
    monkeypatch.delenv("AWS_REGION")
    place = storage_at("s3://corpus/dataset", network=NetworkOptions(retries=1, first_backoff_seconds=0.01))
    monkeypatch.setattr(connections, "AMAZON", "http://127.0.0.1:9")
    with pytest.raises(
        OSError, match=r"no connection to http://127.0.0.1:9, which is asked for the region .* \(Connection refused\)"
    ):
        place.find("a")
    asked: list[str] = []
    with amazon(asked, "eu-central-1", failures=1) as endpoint:
        monkeypatch.setattr(connections, "AMAZON", endpoint)
        with pytest.raises(OSError, match="503"):
            bucket_region(endpoint, "corpus")
        store = connect(StoreRoot.of("s3://corpus/dataset"), NetworkOptions())
    assert isinstance(store, S3Store)
    assert store.config["region"] == "eu-central-1"
    assert asked == ["/corpus", "/corpus"]


@pytest.mark.usefixtures("aws_folder")
@pytest.mark.parametrize(
    "use",
    [
        lambda place: place.put_new("a", b"x"),
        lambda place: place.replace("a", b"x", "1"),
        lambda place: place.remove("a"),
        lambda place: place.start("shards/u", ".shard").write(bytes(9 << 20)),
        lambda place: place.find("a"),
    ],
)
def test_whatever_comes_first_asks_for_the_region_again(
    use: Callable[[Storage], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One 503 of Amazon ended the first write."""
    monkeypatch.delenv("AWS_REGION")
    place = storage_at(
        "s3://corpus/dataset",
        network=NetworkOptions(retries=2, first_backoff_seconds=0.01, upload_seconds=0.01),
    )
    asked: list[str] = []
    with amazon(asked, "eu-central-1", failures=100) as endpoint:
        monkeypatch.setattr(connections, "AMAZON", endpoint)
        with pytest.raises(
            (OSError, OutputError),
            match=f"{endpoint}, which is asked for the region .* AWS_REGION is set, answered 503",
        ):
            use(place)
    assert asked == ["/corpus"] * 3


@pytest.mark.usefixtures("aws_folder")
def test_a_bucket_with_dots_is_asked_for_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """No certificate holds for https://my.bucket.s3.amazonaws.com, so the name of the server is one without dots of
    the bucket's; and an answer that leads to such a name has the region in it already."""
    monkeypatch.delenv("AWS_REGION")
    asked: list[str] = []
    with amazon(asked, "eu-central-1") as endpoint:
        monkeypatch.setattr(connections, "AMAZON", endpoint)
        store = connect(StoreRoot.of("s3://my.bucket/dataset"), NetworkOptions())
    assert isinstance(store, S3Store)
    assert store.config["region"] == "eu-central-1"
    assert asked == ["/my.bucket"]


@pytest.mark.usefixtures("aws_folder")
@pytest.mark.parametrize(
    "names", [("AWS_ENDPOINT",), ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"), ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")]
)
def test_both_clients_ask_the_same_server(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 does not know AWS_ENDPOINT: it asked Amazon for what was uploaded in part to a bucket of that name."""
    for number, name in enumerate(names):
        monkeypatch.setenv(name, f"http://127.0.0.1:{9 + number}")
    store = connect(StoreRoot.of("s3://bucket/dataset"), NetworkOptions())
    assert isinstance(store, S3Store)
    assert store.config["endpoint"] == connections.s3_client().meta.endpoint_url == "http://127.0.0.1:9"


@pytest.mark.usefixtures("aws_folder")
def test_an_endpoint_with_the_name_of_the_bucket_is_not_given_to_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would ask there for keys that begin with the bucket once more."""
    monkeypatch.setenv("AWS_ENDPOINT", "https://bucket.s3.eu-west-1.amazonaws.com")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    assert connections.s3_client().meta.endpoint_url == "https://s3.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    "endpoint", ["localhost:9000", "http://localhost:9000 ", "", "http://", "ftp://host", "http://h:x"]
)
@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_that_is_no_server_is_an_error_that_names_it(
    aws_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, endpoint: str
) -> None:
    """obstore panics, which is no Exception."""
    del aws_folder
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(name, endpoint)
    with pytest.raises(ToolError, match=rf"{name} is '{endpoint}', which is no server; write http://host:port"):
        storage_at("s3://bucket/dataset").read("zarr.json")


def test_an_empty_name_of_googles_key_file_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    with pytest.raises(ToolError, match="GOOGLE_APPLICATION_CREDENTIALS is empty"):
        storage_at("gs://bucket/dataset").read("zarr.json")
