"""Errors of obstore as errors of the operating system, with one short line each.

An error of obstore is a page of text that holds the answer of the server and the objects of its Rust code. What can be
done about it depends on the status of the answer, on the code that a store gives beside it, and on how the connection
failed; only the text has these.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from .interface import NO_BUCKET

# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
STATUSES_TO_RETRY = (408, 429, 500, 502, 503, 504)
_CODES_TO_RETRY = (
    *("RequestTimeout", "SlowDown", "InternalError", "OperationAborted", "ConditionalRequestConflict"),
    *("ServerBusy", "OperationTimedOut"),
)
# How stores ask for fewer requests. Any store may answer 429 instead.
_CODES_OF_TOO_MANY = ("SlowDown", "ServerBusy", "TooManyRequests")
# Credentials that held once. Amazon answers these with 400.
_CODES_OF_OLD_CREDENTIALS = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
_CONNECTION_FAILURES = {
    "Timeout": "no answer in time from {server}",
    "Connect": "no connection to {server}",
    "Interrupted": "the connection broke in the middle of the answer",
    "Request": "the connection broke before the answer",
    "Decode": "the answer makes no sense",
}
# Said of what answers as a web server does, such as the console of a store, which has a port of its own.
NO_STORE = "what answers there is no store, as it sends no ETag: its address or port may be wrong"
FOR_REGION = "for the region of the bucket"
"""Said in the error of a request to Amazon that asks where a bucket lies. Users do not know of it."""
# What some errors of uploads and of urllib say in their place: they have one line, without any `kind:`.
_CONNECTION_TEXTS = {
    "operation timed out": "Timeout",
    "error sending request": "Request",
    "urlopen error timed out": "Timeout",
    "urlopen error": "Connect",
}


@dataclass(frozen=True)
class Failure:
    """What is known of a failed request. `status` is that of the HTTP answer, 0 if there was none; `code` is what the
    store calls it, and `connection` how the connection failed."""

    status: int
    code: str
    connection: str
    kind: str
    text: str

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in STATUSES_TO_RETRY or self.code in _CODES_TO_RETRY or bool(self.connection)

    @property
    def is_throttling(self) -> bool:
        """Whether the store asks for fewer requests. The answer to a HEAD has no code; web servers have none anyway."""
        is_head = "method: HEAD" in self.text and "Generic HTTP error" not in self.text
        return self.status == 429 or self.code in _CODES_OF_TOO_MANY or (self.status == 503 and is_head)

    @property
    def is_short(self) -> bool:
        """Whether the file ends before the range that was asked for begins."""
        # Azurite answers a range that begins where the file ends with nothing, which obstore does not take.
        return self.status == 416 or "Invalid range" in self.text or "Wanted range starting at" in self.text

    @property
    def has_no_ranges(self) -> bool:
        """Whether the server sent the file from its start although a range was asked for."""
        return "non-partial response" in self.text

    @property
    def has_no_etag(self) -> bool:
        """Whether an answer lacks what all answers of stores have."""
        return "ETag Header missing" in self.text


def failure(error: BaseException) -> Failure:
    """Read what an error of obstore, or of urllib, says."""
    text = str(error)
    status = re.search(r"non-2xx status code: (\d+)|status: (\d+),|HTTP Error (\d+):", text)
    # Of a removal of many files S3 answers 200, and says of each file what failed. A file's name may look like a code.
    code = re.search(r"<Code>(\w+)</Code>", text) or re.search(
        r"DeleteObjects request failed for key .*\(code: (\w+)\)$", text, re.MULTILINE
    )
    kinds = re.findall(r"kind: (\w+)", text)
    kinds += [kind for said, kind in _CONNECTION_TEXTS.items() if said in text]
    connection = next((kind for kind in _CONNECTION_FAILURES if kind in kinds), "") if not status else ""
    # "builder error" is a request that could not even be made: a bad URL, or plain HTTP where it is not allowed.
    if "kind: Builder" in text:
        connection = ""
    number = int(status[1] or status[2] or status[3]) if status else 0
    return Failure(number, code[1] if code else "", connection, type(error).__name__, text)


def system_error(error: BaseException, place: str, credentials: str) -> OSError:
    """The error of the operating system that says the same. `credentials` says which ones were tried."""
    return error_of(failure(error), place, credentials)


def error_of(what: Failure, place: str, credentials: str) -> OSError:
    """`system_error` of a failure that is known already."""
    number, text = _meaning(what, credentials)
    # OSError makes itself the subclass that goes with the number.
    return OSError(number, text, place)


def _meaning(what: Failure, credentials: str) -> tuple[int, str]:
    denied = what.kind in ("PermissionDeniedError", "UnauthenticatedError") or what.status in (401, 403)
    denied = denied or what.code == "AccessDenied"
    odd = _odd_key(what)
    cases = (
        (
            bool(odd),
            errno.EILSEQ,
            f"it holds the key {odd!r}, which has an empty part, '.', '..' or a control character",
        ),
        (what.code in ("NoSuchBucket", "ContainerNotFound"), errno.ENOENT, NO_BUCKET),
        (what.kind == "FileNotFoundError", errno.ENOENT, "there is no such object"),
        (denied or _lacks_settings(what), errno.EACCES, f"{_answer(what)}; tried {credentials}"),
        (
            what.code in _CODES_OF_OLD_CREDENTIALS,
            errno.EACCES,
            f"{_answer(what)}: the credentials have to be renewed; tried {credentials}",
        ),
        (bool(_other_region(what)), errno.EINVAL, _other_region(what)),
        (what.has_no_etag, errno.EINVAL, NO_STORE),
        (
            _is_unexplained(what),
            errno.EACCES,
            f"{_answer(what)}, as for credentials that have expired or a wrong region; tried {credentials}",
        ),
        (
            what.connection == "Timeout" or what.code == "RequestTimeout",
            errno.ETIMEDOUT,
            _CONNECTION_FAILURES["Timeout"].format(server=_server(what)),
        ),
        (
            bool(what.connection),
            errno.EIO,
            _CONNECTION_FAILURES.get(what.connection, "").format(server=_server(what)) + _cause(what),
        ),
        (
            what.kind == "NotSupportedError" or what.status in (405, 411, 501),
            errno.ENOTSUP,
            f"the server does not do this: {_answer(what)}",
        ),
        (what.has_no_ranges, errno.ENOTSUP, "the server has no range requests"),
    )
    return next(((number, text) for holds, number, text in cases if holds), (errno.EIO, _answer(what)))


def _odd_key(what: Failure) -> str:
    """The key in a listing that obstore has no path for; "" for another failure."""
    found = re.search(r'invalid path: .*?[Pp]ath "([^\n]+?)"(?: contained|:)', what.text)
    return found[1] if found else ""


def _lacks_settings(what: Failure) -> bool:
    # A URL in it holds the name of the file.
    line = re.sub(r"https?://\S+", "", _first_line(what))
    return "redential" in line or "must be specified" in line


def _is_unexplained(what: Failure) -> bool:
    """Whether S3 refused a HEAD with 400. The answer to a HEAD has no code, and no other reason is known for it."""
    return what.status == 400 and not what.code and "Generic S3 error" in what.text and "method: HEAD" in what.text


def _other_region(what: Failure) -> str:
    """What to say where S3 answers that the bucket lies in another region; "" for another failure. Where it leads to
    that region, obstore does not follow."""
    named = re.search(r"<Region>([\w-]+)</Region>|expecting '([\w-]+)'", what.text)
    if named and what.code in ("AuthorizationHeaderMalformed", "PermanentRedirect"):
        return f"the bucket lies in the region {named[1] or named[2]}, and AWS_REGION or the profile names another"
    is_led_away = "Generic S3 error" in what.text and "redirect without LOCATION" in what.text
    if is_led_away or what.code == "PermanentRedirect":
        return "the bucket lies in another region than AWS_REGION or the profile says"
    return ""


def _server(what: Failure) -> str:
    """The server that a request was sent to, where the error has it: the user may have named another one."""
    found = re.search(r"Error performing \w+ (https?://)(?:[^/\s@]*@)?([^/\s@]+)", what.text)
    server = f"{found[1]}{found[2]}" if found else "the server"
    return f"{server}, which is asked {FOR_REGION} unless AWS_REGION is set" if FOR_REGION in what.text else server


def _answer(what: Failure) -> str:
    if not what.status:
        return _first_line(what)
    server = f"{_server(what)}," if FOR_REGION in what.text else "the server"
    return f"{server} answered {what.status}{f' {what.code}' if what.code else ''}"


def _first_line(what: Failure) -> str:
    line = what.text.partition("\n")[0].partition("<")[0].strip(" :")
    return line if len(line) <= 200 else f"{line[:200]}..."


def _cause(what: Failure) -> str:
    message = re.search(r'message: "([^"\n]{1,80})"', what.text)
    if message:
        return f" ({message[1]})"
    return " (its name is not known)" if "dns error" in what.text else ""
