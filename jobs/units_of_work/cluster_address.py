"""The address of the Ray cluster that a job joins, parsed and checked before anything starts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import UsageError

AUTO = "auto"
_LOCAL = "local"
_REMEDY = "give HOST:PORT as `ray start` printed it, `auto` for a cluster on this machine, or `local`"
# A name, an IPv4 address, or an IPv6 address in brackets.
_HOST_AND_PORT = re.compile(r"(?P<host>[^\s:/@\[\]]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>[0-9]{1,5})", re.ASCII)


def cluster_address(address: str | None, environment: Mapping[str, str]) -> str | None:
    """The cluster that a job joins, as HOST:PORT or `auto`; None for a local Ray.

    `address` is what the user gave. If it is None or `auto`, $RAY_ADDRESS in `environment` is used if it is set, as it
    is in a submitted job. UsageError names the address, where it was given and what to write instead.
    """
    if address is not None and address != AUTO:
        return _understood(address, "--address")
    from_environment = environment.get("RAY_ADDRESS")
    return _understood(from_environment, "RAY_ADDRESS in the environment") if from_environment else address


def host_and_port(address: str) -> tuple[str, int]:
    """Host and port of an address HOST:PORT that `cluster_address` returned."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _understood(address: str, name: str) -> str | None:
    if address == _LOCAL:
        return None
    if address == AUTO:
        return address
    scheme, separator, _ = address.partition("://")
    if separator:
        other = {
            "ray": "a Ray Client, which shortgop does not use",
            "http": "the dashboard, which takes jobs by `ray job submit`",
            "https": "the dashboard, which takes jobs by `ray job submit`",
        }
        raise UsageError(f"{name} is {address!r}, an address for {other.get(scheme, 'something else')}; {_REMEDY}")
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise UsageError(f"{name} is {address!r}, which is not an address of a Ray cluster; {_REMEDY}")
    return address
