"""What goes wrong with stores: errors of the system with one short line, and where credentials come from."""

from __future__ import annotations

import contextlib
import errno
import pickle
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from obstore.exceptions import GenericError
from obstore.store import AzureStore

from flaky_proxy import Faults, FlakyProxy
from s3_server import BUCKET, environment
from shortgop.errors import OutputError
from shortgop.storage.connections import StoreRoot, connect
from shortgop.storage.locate import storage_at
from shortgop.storage.network import AT_THE_START, NetworkOptions
from shortgop.storage.object_errors import failure, system_error
from shortgop.whole_files import writing

NO_RETRIES = NetworkOptions(retries=0, throttled_seconds=0)


def short(error: BaseException) -> bool:
    """Whether nothing of obstore's pages of text is in what a user sees."""
    shown = "".join(traceback.format_exception(error))
    return len(str(error)) < 400 and "\n" not in str(error) and "Debug source" not in shown


def test_what_is_not_there(s3_url: str) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        storage_at(s3_url).read("zarr.json")
    assert caught.value.filename == f"{s3_url}/zarr.json"
    assert short(caught.value)


def test_a_bucket_that_is_not_there(s3_url: str) -> None:
    storage = storage_at("s3://no-such-bucket/dataset")
    with pytest.raises(FileNotFoundError, match="there is no such bucket") as caught:
        list(storage.files(""))
    assert short(caught.value)
    with pytest.raises(OutputError, match="cannot write s3://no-such-bucket/dataset: there is no such bucket"):
        storage.make()


def test_no_permission(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = storage_at(proxied_url)
    s3_proxy.faults(Faults(statuses=10, status=403))
    with pytest.raises(PermissionError, match="tried the key key... from AWS_ACCESS_KEY_ID") as caught:
        storage.read("a")
    assert short(caught.value)
    with pytest.raises(OutputError, match="403.*tried the key.*give yourself permission") as written:
        storage.put_new("a", b"abc")
    assert short(written.value)
    with pytest.raises(OutputError, match="403.*tried the key.*give yourself permission"):
        storage.take("a")


@pytest.mark.parametrize("answer", ["Server returned non-2xx status code: 500 Internal Server Error", "HTTP error"])
def test_a_file_with_credentials_in_its_name_is_no_matter_of_credentials(answer: str) -> None:
    error = GenericError(f"Generic S3 error: Error performing GET http://host/b/credentials/a.mp4 in 1ms - {answer}")
    assert system_error(error, "s3://b/credentials/a.mp4", "the key").errno == errno.EIO


def test_no_permission_to_remove_files() -> None:
    """S3 answers 200 to a removal of many, as obstore makes all, and says of each file why it stays."""
    denied = GenericError(
        "Generic S3 error: DeleteObjects request failed for key p/b: Access Denied (code: AccessDenied)\n\nDebug: ..."
    )
    with (
        pytest.raises(OutputError, match="Access Denied.*tried the key.*give yourself permission"),
        writing("s3://b/p"),
    ):
        raise system_error(denied, "s3://b/p", "the key AKIA... from AWS_ACCESS_KEY_ID")


def test_a_name_that_looks_like_a_code_is_none() -> None:
    name = "p/clip (code: AccessDenied).mp4"
    not_removed = f"Generic S3 error: DeleteObjects request failed for key {name}: Reduce your rate (code: SlowDown)"
    not_there = f"Object at location {name} not found"
    not_read = f"Generic S3 error: Error performing GET http://host/{name} in 1ms - Server returned non-2xx status code"
    not_read += ": 500: <Error><Code>InternalError</Code></Error>"
    texts = (f"{not_removed}\n\nDebug source:\n...", not_there, not_read)
    assert [failure(GenericError(text)).code for text in texts] == ["SlowDown", "", "InternalError"]


def refusal(code: str, method: str = "GET") -> GenericError:
    """What obstore says of a 400."""
    body = f"<Error><Code>{code}</Code><Message>The provided token is no good.</Message></Error>" if code else ""
    return GenericError(
        f"Generic S3 error: Error performing {method} https://host/b/a in 2.1ms - Server returned non-2xx status code: "
        f'400 Bad Request: {body}\n\nDebug source:\nGeneric {{\n    store: "S3",\n    source: RetryError(\n'
        f"        RetryErrorImpl {{\n            method: {method},\n"
    )


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken"])
def test_credentials_that_have_expired(code: str) -> None:
    """Amazon answers 400, and not 403."""
    found = system_error(refusal(code), "s3://b/a", "the key ASIA... from AWS_ACCESS_KEY_ID")
    assert isinstance(found, PermissionError)
    assert found.strerror == (
        f"the server answered 400 {code}: the credentials have to be renewed; tried the key ASIA... from "
        "AWS_ACCESS_KEY_ID"
    )


def test_credentials_that_have_expired_when_a_file_is_looked_for(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """The answer to a HEAD has no code."""
    storage = storage_at(proxied_url)
    s3_proxy.faults(Faults(statuses=1, status=400))
    with pytest.raises(PermissionError, match=r"400, as for credentials that have expired or a wrong region; tried"):
        storage.find("a")


def test_another_bad_request_is_no_matter_of_credentials() -> None:
    for error in (refusal("InvalidRequest"), refusal("InvalidRequest", "HEAD"), refusal("")):
        assert system_error(error, "s3://b/a", "").errno == errno.EIO


def test_a_server_that_does_not_work(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    s3_proxy.faults(Faults(statuses=10, status=503))
    with pytest.raises(OSError, match="the server answered 503 SlowDown") as caught:
        storage_at(proxied_url, network=NO_RETRIES).read("a")
    assert short(caught.value)


def test_no_server(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"no connection to http://127.0.0.1:9 \(Connection refused\)") as caught:
        storage_at(s3_url, network=NO_RETRIES).read("a")
    assert short(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        "in 2ms - Server returned non-2xx status code: 400 Bad Request: <Error><Code>AuthorizationHeaderMalformed"
        "</Code><Message>The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-west-1'"
        "</Message><Region>eu-west-1</Region></Error>",
        "in 2ms - Received redirect without LOCATION, this normally indicates an incorrectly configured region",
    ],
)
def test_a_bucket_of_another_region_is_called_that(answer: str) -> None:
    """As Amazon answers."""
    error = GenericError(f"Generic S3 error: Error performing GET https://s3.amazonaws.com/b/a {answer}")
    found = system_error(error, "s3://b/a", "")
    assert found.strerror in (
        "the bucket lies in the region eu-west-1, and AWS_REGION or the profile names another",
        "the bucket lies in another region than AWS_REGION or the profile says",
    )
    with pytest.raises(OutputError, match="names another; fix that|profile says; fix that"), writing("s3://b/a"):
        raise found


def test_a_redirect_of_another_server_is_no_matter_of_regions() -> None:
    answer = "in 2ms - Received redirect without LOCATION, this normally indicates an incorrectly configured region"
    found = system_error(
        GenericError(f"Generic HTTP error: Error performing GET http://a.b/c {answer}"), "http://a.b", ""
    )
    assert "region than AWS_REGION" not in str(found.strerror)


def test_a_header_that_is_malformed_otherwise_is_no_matter_of_regions() -> None:
    found = system_error(refusal("AuthorizationHeaderMalformed"), "s3://b/a", "")
    assert found.strerror == "the server answered 400 AuthorizationHeaderMalformed"


@pytest.mark.parametrize("name", ["no_port", "no_host", "no_answer"])
def test_a_store_that_never_answers_is_an_error_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address may be mistyped. It was one after up to five minutes."""
    with contextlib.ExitStack() as stack:
        address = {"no_port": "127.0.0.1:9", "no_host": "no-such-host.invalid"}.get(name)
        server = address or f"127.0.0.1:{stack.enter_context(port_that_drops())}"
        use(f"http://{server}", monkeypatch)
        hurried = replace(AT_THE_START, first_answer_seconds=1, connect_timeout_seconds=1)
        began = time.monotonic()
        with pytest.raises(OSError, match=f"(connection to|in time from) http://{server}"):
            storage_at("s3://corpus/dataset", network=hurried).read("a")
        assert time.monotonic() - began < 30


def test_a_store_whose_first_answers_come_late_is_asked_a_third_time(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """Each of the first two took half a minute, and a command ended with the second one."""
    hurried = replace(AT_THE_START, first_answer_seconds=0.01, timeout_seconds=0.2, first_backoff_seconds=0.01)
    s3_proxy.faults(Faults(silent=2))
    assert storage_at(proxied_url, network=hurried).find("a") is None


def test_a_store_that_has_answered_is_waited_for(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """A job goes on after an outage. So does a worker that begins during one: its storage was sent to it."""
    hurried = NetworkOptions(first_answer_seconds=0.01, timeout_seconds=0.2, first_backoff_seconds=0.01)
    storage = storage_at(proxied_url, network=hurried)
    s3_proxy.faults(Faults(silent=5))
    with pytest.raises(TimeoutError):
        storage.read("a")
    s3_proxy.faults(Faults())
    assert storage.put_new("a", b"abc")
    s3_proxy.faults(Faults(silent=5))
    assert storage.read("a") == b"abc"
    s3_proxy.faults(Faults(silent=5))
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"abc"


def use(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let s3:// URLs mean this server."""
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)


@contextlib.contextmanager
def port_that_drops() -> Iterator[int]:
    """A port of this machine at which nothing is answered, as behind a firewall: more wait there than it takes."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


def test_keys_and_endpoint_of_a_profile(
    s3_url: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(f"[profile team]\nregion = eu-west-1\nendpoint_url = {s3_endpoint}\n")
    (tmp_path / "credentials").write_text("[team]\naws_access_key_id = abc\naws_secret_access_key = def\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    storage = storage_at(s3_url)
    with storage.lock():
        assert storage.put_new("a", b"abc")
    assert storage.read("a") == b"abc"


def test_a_plain_http_endpoint_needs_no_other_setting(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    assert storage_at(s3_url).put_new("a", b"abc")


def test_azure_takes_the_settings_of_its_own_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PermissionError, match="Account must be specified; tried Azure's settings") as caught:
        storage_at("az://container/dataset").find("a")
    assert short(caught.value)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    store = connect(StoreRoot.of("az://container/dataset"), NO_RETRIES)
    assert isinstance(store, AzureStore)
    assert (store.config["account_name"], store.config["account_key"]) == ("account", "a2V5")
    store = connect(StoreRoot.of("abfss://container@other.dfs.core.windows.net/dataset"), NO_RETRIES)
    assert isinstance(store, AzureStore)
    assert (store.config["container_name"], store.config["account_name"]) == ("container", "other")


def test_web_servers_are_read_only(s3_url: str, s3_endpoint: str) -> None:
    storage_at(s3_url).put_new("a/b", b"0123456789")
    prefix = s3_url.removeprefix(f"s3://{BUCKET}/")
    boto3.client("s3", region_name="us-east-1").put_object_acl(Bucket=BUCKET, Key=f"{prefix}/a/b", ACL="public-read")
    web = storage_at(s3_url.replace("s3:/", s3_endpoint))
    assert web.read("a/b", 2, 4) == b"23"
    with web.open("a/b") as file:
        assert file.read(8, 10) == b"89"
    assert web.find("a/c") is None
    for write in (
        lambda: web.put_new("c", b""),
        lambda: web.remove("a/b"),
        lambda: web.start("a", "b"),
        web.lock,
        web.make,
    ):
        with pytest.raises(OutputError, match="nothing is written to web servers"):
            write()
    with pytest.raises(OSError, match="a web server does not list its files"):
        list(web.files(""))


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_obstore_is_imported_where_a_store_is_used() -> None:
    code = (
        "import sys, shortgop\n"
        "from shortgop.storage.locate import storage_at\n"
        "storage = storage_at('s3://bucket/dataset')\n"
        "print([name for name in ('obstore', 'boto3') if name in sys.modules])\n"
    )
    assert run(code).strip() == "[]"


FORK = """
import os
from shortgop.errors import UsageError
from shortgop.storage.locate import storage_at
storage = storage_at('memory://name')
{before}
child = os.fork()
if child == 0:
    try:
        print(storage.put_new('b', b'abc'), flush=True)
    except UsageError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_process_says_what_to_do() -> None:
    shown = run(FORK.format(before="storage.put_new('a', b'abc')"))
    assert "memory://name" in shown
    assert "multiprocessing.get_context('forkserver')" in shown


def test_a_process_forked_before_the_first_request_works() -> None:
    assert run(FORK.format(before="")).strip() == "True"


def test_a_failed_upload_says_how_the_connection_failed() -> None:
    """Its error has no more than this one line."""
    line = "Generic S3 error: Error performing PUT http://127.0.0.1:1/b/a?partNumber=3 in 2s, after 8 retries"
    for cause, number, said in (
        ("error sending request", errno.EIO, "the connection broke before the answer"),
        ("operation timed out", errno.ETIMEDOUT, "no answer in time from http://127.0.0.1:1"),
    ):
        error = OSError(f"{line}, max_retries: 8, retry_timeout: 180s  - HTTP error: {cause}")
        found = system_error(error, "s3://b/a", "")
        assert (found.errno, found.strerror) == (number, said)
