"""Login to a Ray cluster, or to a local Ray: whether a cluster answers, whether it needs a token, and which token.

A cluster may need a token, and a process that joins must be in the same mode as the cluster: a driver with a token in a
cluster without one turns the workers away. So the cluster is asked first. Ray itself tries only one mode, gives up
after twenty seconds, and ends the process if it finds no token.
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

from ...errors import ToolError
from ..units_of_work.cluster_address import host_and_port

# Ray's native code, without types.
_native: Any = _raylet
_ANSWER_TIMEOUT_SECONDS = 10
_SETTINGS_FRAME = 4
_FRAME_HEADER_BYTES = 9
_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_NAME_ANOTHER = (
    "give the address of a running one with --address HOST:PORT, or do the same work in this process, without Ray, "
    "with --runner inline"
)
_TAKE_THE_CLUSTERS = (
    "`ray get-auth-token` prints the right one on the cluster's head: "
    "put it into RAY_AUTH_TOKEN, or into ~/.ray/auth_token"
)


@contextlib.contextmanager
def restored_login() -> Iterator[None]:
    """Restores the environment variables of Ray's login on exit: Ray itself changes them for good."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    try:
        yield
    finally:
        for name, value in before.items():
            _set_variable(name, value)
        # Not if a token is required and there is none: Ray would then end the process.
        if _has_tokens() and not (_uses_token() and _token_problem()):
            _use_environment()


def login_to_own() -> None:
    """Prepare for starting a local Ray, with a token made for this job, unless RAY_AUTH_MODE says otherwise.

    The token in ~/.ray is not used: it may be outdated or change during the job, and the folder may not be writable.
    """
    if _has_tokens() and _uses_token(default_mode="token"):
        _set_variable("RAY_AUTH_MODE", "token")
        _set_variable("RAY_AUTH_TOKEN", secrets.token_hex(32))
    _use_environment()


def login_to_cluster(address: str) -> str:
    """Prepare for joining a cluster (HOST:PORT or `auto`); returns its address as HOST:PORT.

    ToolError if no cluster answers, if it needs a token and none is found, if it refuses the token, or if it has no
    node on this machine.
    """
    resolved = _resolved(address)
    # The address as the user wrote it, and the address that it stands for.
    name = resolved if address == resolved else f"{address} ({resolved})"
    _check_answers(resolved, name)
    _use_mode_of(resolved, name)
    # Without this check Ray would look for a node for a minute.
    find_node_ids = getattr(services, "find_node_ids", None)
    if find_node_ids is not None and not find_node_ids():
        raise ToolError(
            f"the Ray cluster at {name} has no node on this machine, and Ray needs one where the job is started; run "
            f"`ray start --address {resolved}` here first, start the job on one of its nodes, or use `ray job submit`"
        )
    return resolved


def _use_mode_of(resolved: str, name: str) -> None:
    if not _has_tokens():
        return
    _set_variable("RAY_AUTH_MODE", "disabled")
    _use_environment()
    if _is_accepted(resolved, name):
        return
    problem = _token_problem()
    if problem is not None:
        raise ToolError(f"the Ray cluster at {name} needs a token, and {problem}; {_TAKE_THE_CLUSTERS}")
    _set_variable("RAY_AUTH_MODE", "token")
    _use_environment()
    if not _is_accepted(resolved, name):
        raise ToolError(f"the Ray cluster at {name} refuses the token {_token_place()}; {_TAKE_THE_CLUSTERS}")


def _resolved(address: str) -> str:
    try:
        resolved = services.canonicalize_bootstrap_address(address)
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError(f"no Ray cluster is found at {address}: {error}; {_NAME_ANOTHER}") from error
    if resolved is None:
        raise ToolError(f"no Ray cluster runs on this machine; {_NAME_ANOTHER}")
    return resolved


def _check_answers(address: str, name: str) -> None:
    """ToolError if no server at this address speaks HTTP/2, as Ray does. Ray itself would keep trying for minutes."""
    try:
        with socket.create_connection(host_and_port(address), timeout=_ANSWER_TIMEOUT_SECONDS) as connection:
            # With TLS the server waits for the client to begin.
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS_FRAME, 0, 0, 0, 0, 0]))
            header = connection.makefile("rb").read(_FRAME_HEADER_BYTES)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"no Ray cluster answers at {name}: {error}; {_NAME_ANOTHER}") from error
    if len(header) < _FRAME_HEADER_BYTES or header[3] != _SETTINGS_FRAME:
        raise ToolError(f"what answers at {name} is not a Ray cluster; {_NAME_ANOTHER}")


def _is_accepted(address: str, name: str) -> bool:
    """Whether the cluster accepts this process in the mode that the environment now gives."""
    try:
        with _quiet_native_code():
            _native.GcsClient(address=address)
    except exceptions.RayError as error:
        if isinstance(error, exceptions.AuthenticationError):
            return False
        raise ToolError(
            f"what answers at {name} is not a Ray cluster, or is too busy: {error}; {_NAME_ANOTHER}"
        ) from error
    return True


def _token_problem() -> str | None:
    """Why there is no token, or None if any of Ray's places has one."""
    try:
        found = _native.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    except exceptions.RayError:
        return f"the file {os.environ.get('RAY_AUTH_TOKEN_PATH')!r} that RAY_AUTH_TOKEN_PATH names is missing or empty"
    return None if found else "none is in RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"


def _token_place() -> str:
    """The place of the token. Ray looks at the places in this order."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "in RAY_AUTH_TOKEN"
    file = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return f"in {file}, which RAY_AUTH_TOKEN_PATH names" if file else "in ~/.ray/auth_token"


def _has_tokens() -> bool:
    """Whether this version of Ray has tokens."""
    return hasattr(_native, "AuthenticationTokenLoader")


def _uses_token(default_mode: str = "disabled") -> bool:
    """Whether RAY_AUTH_MODE, or the default where it is not set, is "token"."""
    return os.environ.get("RAY_AUTH_MODE", default_mode).lower() == "token"


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _use_environment() -> None:
    """Make Ray's native code, which has read the environment once, read it again."""
    if _has_tokens():
        # In this order, because a thread that still runs must not look for a token that is no longer required.
        _native.Config.initialize("")
        _native.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _quiet_native_code() -> Iterator[None]:
    """Silences standard error, where Ray's native code reports the refusal that the caller asks about."""
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
