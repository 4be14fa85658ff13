"""How to get into a Ray cluster, or into a Ray of one's own: who answers, whether a token is wanted, and which.

A cluster may want a token, and what joins it has to be in the same mode: a driver that wants a token where there is
none turns the workers away. So the cluster is asked first. Ray itself only ever tries one way, for twenty seconds
before it gives up, and where it finds no token it ends the process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from typing import Any

from ray import _raylet, exceptions
from ray._private import services

from ..errors import ToolError
from .cluster_address import host_and_port

# Ray's native code, without types.
_native: Any = _raylet
_KNOCK_SECONDS = 10
_SETTINGS_FRAME = 4
_FRAME_HEADER_BYTES = 9
_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_NAME_ANOTHER = (
    "name one that runs with --address HOST:PORT; --runner inline does the same work in this process without Ray"
)
_TAKE_THE_CLUSTERS = (
    "`ray get-auth-token` prints the right one on the cluster's head: "
    "put it into RAY_AUTH_TOKEN, or into ~/.ray/auth_token"
)


@contextlib.contextmanager
def restored_login() -> Iterator[None]:
    """Put Ray's settings back to what they were: Ray itself changes the environment for good."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    try:
        yield
    finally:
        for name, value in before.items():
            _set_variable(name, value)
        # Ray ends the process when a token is wanted and there is none; what it does next shall not be that.
        if _has_tokens() and not (_wants_token() and _token_problem()):
            _use_environment()


def login_to_own() -> None:
    """Prepare for starting a local Ray: with a token that nobody else has, unless Ray was told to go without.

    It does not depend on what lies in ~/.ray, which may be outdated, or change under way, or not be writable.
    """
    if _has_tokens() and _wants_token(unless_told="token"):
        _set_variable("RAY_AUTH_MODE", "token")
        _set_variable("RAY_AUTH_TOKEN", secrets.token_hex(32))
    _use_environment()


def login_to_cluster(address: str) -> str:
    """Prepare for joining a cluster (HOST:PORT or `auto`); returns its address as HOST:PORT.

    ToolError when none answers there, when it wants a token and none is at hand, when it refuses the one that is, or
    when none of its nodes can be on this machine.
    """
    resolved = _resolved(address)
    # What the user wrote, and what it stands for.
    name = resolved if address == resolved else f"{address} ({resolved})"
    _knock(resolved, name)
    _use_mode_of(resolved, name)
    # Ray looks for a minute.
    find_node_ids = getattr(services, "find_node_ids", None)
    if find_node_ids is not None and not find_node_ids():
        raise ToolError(
            f"the Ray cluster at {name} has no node on this machine, and Ray wants one where the job is started: run "
            f"`ray start --address {resolved}` here first, start the job on one of its nodes, or use `ray job submit`"
        )
    return resolved


def _use_mode_of(resolved: str, name: str) -> None:
    if not _has_tokens():
        return
    _set_variable("RAY_AUTH_MODE", "disabled")
    _use_environment()
    if _is_let_in(resolved, name):
        return
    problem = _token_problem()
    if problem is not None:
        raise ToolError(f"the Ray cluster at {name} wants a token, and {problem}; {_TAKE_THE_CLUSTERS}")
    _set_variable("RAY_AUTH_MODE", "token")
    _use_environment()
    if not _is_let_in(resolved, name):
        raise ToolError(f"the Ray cluster at {name} refuses the token {_token_place()}; {_TAKE_THE_CLUSTERS}")


def _resolved(address: str) -> str:
    try:
        resolved = services.canonicalize_bootstrap_address(address)
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError(f"no Ray cluster is found at {address}: {error}; {_NAME_ANOTHER}") from error
    if resolved is None:
        raise ToolError(f"no Ray cluster runs on this machine; {_NAME_ANOTHER}")
    return resolved


def _knock(address: str, name: str) -> None:
    """ToolError when nobody speaks HTTP/2 there, as Ray does: it would keep trying for minutes."""
    try:
        with socket.create_connection(host_and_port(address), timeout=_KNOCK_SECONDS) as connection:
            # Encrypted, the other side waits for us.
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS_FRAME, 0, 0, 0, 0, 0]))
            header = connection.makefile("rb").read(_FRAME_HEADER_BYTES)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"no Ray cluster answers at {name}: {error}; {_NAME_ANOTHER}") from error
    if len(header) < _FRAME_HEADER_BYTES or header[3] != _SETTINGS_FRAME:
        raise ToolError(f"something else than a Ray cluster answers at {name}; {_NAME_ANOTHER}")


def _is_let_in(address: str, name: str) -> bool:
    """Whether the cluster answers us in the mode that the environment is in now."""
    try:
        with _quiet_native_code():
            _native.GcsClient(address=address)
    except exceptions.RayError as error:
        if isinstance(error, exceptions.AuthenticationError):
            return False
        raise ToolError(
            f"something else than a Ray cluster answers at {name}, or it is too busy: {error}; {_NAME_ANOTHER}"
        ) from error
    return True


def _token_problem() -> str | None:
    """Why there is no token, or None when there is one, in any of Ray's places."""
    try:
        found = _native.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    except exceptions.RayError:
        return f"the file {os.environ.get('RAY_AUTH_TOKEN_PATH')!r} that RAY_AUTH_TOKEN_PATH names is missing or empty"
    return None if found else "none is in RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"


def _token_place() -> str:
    """Where the token comes from, in the order in which Ray looks."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "in RAY_AUTH_TOKEN"
    file = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return f"in {file}, which RAY_AUTH_TOKEN_PATH names" if file else "in ~/.ray/auth_token"


def _has_tokens() -> bool:
    """Whether this Ray knows of tokens at all."""
    return hasattr(_native, "AuthenticationTokenLoader")


def _wants_token(unless_told: str = "disabled") -> bool:
    return os.environ.get("RAY_AUTH_MODE", unless_told).lower() == "token"


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _use_environment() -> None:
    """Make Ray's native code, which has read the environment once, read it again."""
    if _has_tokens():
        # In this order: a thread that is still at work must not look for a token that is no longer wanted.
        _native.Config.initialize("")
        _native.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _quiet_native_code() -> Iterator[None]:
    """Ray's native code complains on standard error about a refusal that is just what was asked about."""
    try:
        kept = os.dup(2)
    except OSError:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
