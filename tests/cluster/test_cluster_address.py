"""What may stand behind --address and in $RAY_ADDRESS, and with which runner."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.units_of_work.cluster_address import cluster_address, host_and_port
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo


@pytest.mark.parametrize(
    ("address", "environment", "expected"),
    [
        (None, {}, None),
        (None, {"RAY_ADDRESS": ""}, None),
        (None, {"RAY_ADDRESS": "head:6379"}, "head:6379"),
        (None, {"RAY_ADDRESS": "local"}, None),
        ("auto", {}, "auto"),
        ("auto", {"RAY_ADDRESS": "head:6379"}, "head:6379"),
        ("local", {"RAY_ADDRESS": "head:6379"}, None),
        ("10.0.0.1:6379", {"RAY_ADDRESS": "head:6379"}, "10.0.0.1:6379"),
        ("[fe80::1]:6379", {}, "[fe80::1]:6379"),
    ],
)
def test_what_is_given_counts_before_the_environment(
    address: str | None, environment: dict[str, str], expected: str | None
) -> None:
    assert cluster_address(address, environment) == expected


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "not an address of a Ray cluster"),
        ("head", "not an address of a Ray cluster"),
        (":6379", "not an address of a Ray cluster"),
        ("head:", "not an address of a Ray cluster"),
        ("head:0", "not an address of a Ray cluster"),
        ("head:65536", "not an address of a Ray cluster"),
        ("head:6379 ", "not an address of a Ray cluster"),
        ("::1:6379", "not an address of a Ray cluster"),
        ("ray://head:10001", "an address for a Ray Client"),
        ("http://head:8265", "an address for the dashboard"),
        ("redis://head:6379", "an address for something else"),
    ],
)
def test_addresses_that_no_cluster_has_are_refused_by_name(address: str, reason: str) -> None:
    with pytest.raises(shortgop.UsageError) as caught:
        Where(address=address)
    assert f"--address is {address!r}" in str(caught.value)
    assert reason in str(caught.value)
    assert "give HOST:PORT as `ray start` printed it" in str(caught.value)


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = cluster_address(text, {})
    except shortgop.UsageError as error:
        assert repr(text) in str(error)  # noqa: PT017  # most texts are refused, some are not
    else:
        assert address in (None, "auto") or 0 < host_and_port(address)[1] < 65536


def test_an_unfit_ray_address_in_the_environment_is_named(
    constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray job submit` wants the dashboard's address in the same variable."""
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(shortgop.UsageError, match="RAY_ADDRESS in the environment is 'http://127.0.0.1:8265'"):
        prepare([str(constant_video.path)], DiskStorage(tmp_path / "dataset"), Profile())
    assert not (tmp_path / "dataset").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"runner": "slurm"}, "--runner is 'slurm'"),
        ({"runner": "inline", "address": "head:6379"}, "--address head:6379 names a Ray cluster"),
        ({"runner": "inline", "address": "auto"}, "--address auto names a Ray cluster"),
        ({"runner": "inline", "workers": 2}, "--workers is 2, but --runner inline runs one unit after the other"),
        ({"workers": 0}, "--workers is 0"),
        ({"workers": -1}, "--workers is -1"),
        ({"workers": True}, "--workers is True"),
        ({"workers": 1.5}, "--workers is 1.5"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(shortgop.UsageError) as caught:
        Where(**options)
    assert reason in str(caught.value)


def test_inline_takes_no_notice_of_ray_address_in_the_environment(
    constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner was named, the variable only lies around; the encoder is tried here, where it will run."""
    monkeypatch.setenv("RAY_ADDRESS", "nowhere.invalid:6379")
    where = Where(runner="inline", workers=1)
    assert (
        prepare([str(constant_video.path)], DiskStorage(tmp_path / "dataset"), Profile(), where=where).videos_added == 1
    )
    unfit = Profile(preset="quickest")
    with pytest.raises(shortgop.ToolError, match="quickest"):
        prepare([str(constant_video.path)], DiskStorage(tmp_path / "other"), unfit, where=where)
    assert not (tmp_path / "other").exists()


@pytest.fixture
def other_server() -> Iterator[str]:
    """Start a server that answers as a web server does; returns its address."""
    with socket.create_server(("", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_something_else_at_the_address_is_noticed_at_once(
    other_server: str, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """Ray would keep trying for 40 seconds."""
    with pytest.raises(shortgop.ToolError, match=f"what answers at {other_server} .*is not a Ray cluster"):
        prepare(
            [str(constant_video.path)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where(address=other_server)
        )
