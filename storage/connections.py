"""Connections to object stores: with the credentials, regions and endpoints that the clouds' own tools would use.

obstore itself looks at the environment, at the roles of instances and containers, and at Google's default credentials.
What AWS keeps in files (profiles) takes boto3.
"""

from __future__ import annotations

import configparser
import http.client
import importlib.util
import os
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import ToolError
from .hub import hub_place, request_headers, token_tried
from .network import NetworkOptions, is_server
from .object_errors import FOR_REGION

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, MemoryStore, ObjectStore, RetryConfig, S3Config

# Who is asked for the region of a bucket.
AMAZON = "https://s3.amazonaws.com"
# Time limits how often a piece of an upload is sent again. A pause is between the first one and so many times the one
# before, so that it doubles on average; with obstore's own 2 it hardly grows, and eight of them took 1.3 s.
_MOST_RETRIES, _BACKOFF_BASE = 1000, 4.0
# Where the AWS tools find credentials before they look at files.
_AWS_CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)
# Settings of a profile any of which says how requests are signed.
_PROFILE_CREDENTIALS = (
    *("aws_access_key_id", "role_arn", "credential_process", "web_identity_token_file"),
    *("sso_session", "sso_start_url", "login_session"),
)

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


@dataclass(frozen=True)
class StoreRoot:
    """The parts of the URL of a store: `bucket` is a container, a host or a name for some of them.

    `prefix` is what keys in the bucket begin with. For web servers it is empty, and `base` is all of the URL: for
    hf://, which is served like files on the web, the one that it stands for there.
    """

    scheme: str
    bucket: str
    prefix: str
    base: str = ""

    @staticmethod
    def of(url: str) -> StoreRoot:
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme == "hf":
            return StoreRoot(scheme, bucket, "", hub_place(url).files_url)
        return StoreRoot(scheme, bucket, "", url) if scheme in ("http", "https") else StoreRoot(scheme, bucket, prefix)

    def key(self, key: str) -> str:
        """The key in the bucket of a key below the root."""
        return f"{self.prefix}/{key}" if self.prefix else key


def connect(root: StoreRoot, options: NetworkOptions, *, uploads: bool = False) -> ObjectStore:
    """A store of obstore: all of a bucket. No request is made for most, except to credential services.

    The store does not retry requests, since its callers do. With `uploads` it retries them itself: callers cannot
    repeat a single part of an upload. It then also allows ten times as long for an answer, since the server sends
    nothing while it receives a part.
    """
    from obstore import store as stores

    if root.scheme == "memory":
        with _memory_lock:
            return _memory_stores.setdefault(root.bucket, stores.MemoryStore())
    endpoint = _endpoint(root)
    patience = options.timeout_seconds * 10
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=options.connect_timeout_seconds),
        "timeout": timedelta(seconds=patience),
        "allow_http": root.base.startswith("http://") or endpoint.startswith("http://"),
    }
    if not uploads:
        client["read_timeout"] = timedelta(seconds=options.timeout_seconds)
    retry: RetryConfig = {
        "max_retries": _MOST_RETRIES if uploads else 0,
        "retry_timeout": timedelta(seconds=options.upload_seconds),
        "backoff": {
            "init_backoff": timedelta(seconds=max(options.first_backoff_seconds, 0.001)),
            "max_backoff": timedelta(seconds=options.max_backoff_seconds),
            "base": _BACKOFF_BASE,
        },
    }
    if root.scheme == "s3":
        return _s3(root, client, retry)
    if root.scheme == "gs":
        return stores.GCSStore(root.bucket, client_options=client, retry_config=retry)
    if root.scheme in ("az", "abfss"):
        container, _, host = root.bucket.partition("@")
        account = host.partition(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT")
        key = os.environ.get("AZURE_STORAGE_KEY")
        config: AzureConfig = {}
        if account:
            config["account_name"] = account
        if key:
            config["account_key"] = key
        return stores.AzureStore(container, config=config, client_options=client, retry_config=retry)
    if root.scheme == "hf":
        client["default_headers"] = request_headers()
    url = f"{root.base}?{options.query}" if options.query else root.base
    return stores.HTTPStore(url, client_options=client, retry_config=retry)


def _s3(root: StoreRoot, client: ClientConfig, retry: RetryConfig) -> ObjectStore:
    from obstore.store import S3Store

    config: S3Config = {"copy_if_not_exists": "multipart"}
    provider: Any = None
    if uses_boto3():
        provider, from_files = _from_profile()
        config.update(from_files)
    if endpoint := _endpoint(root):
        config["endpoint"] = endpoint
    client["allow_http"] = config.get("endpoint", "").startswith("http://")
    if "region" not in config and not _environment("AWS_REGION", "AWS_DEFAULT_REGION"):
        # Stores other than Amazon's accept any region.
        config["region"] = "us-east-1" if "endpoint" in config else bucket_region(AMAZON, root.bucket)
    return S3Store(
        root.bucket,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=provider,
    )


def has_boto3() -> bool:
    """Whether boto3 is installed."""
    return importlib.util.find_spec("boto3") is not None


def uses_boto3() -> bool:
    """Whether the AWS settings of this user are partly in files. ToolError if they name a profile, or have credentials
    that nothing in the environment takes the place of, and there is no boto3."""
    installed = has_boto3()
    profile = _environment("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
    if profile and not installed:
        raise ToolError(f"AWS_PROFILE is {profile!r}, which needs boto3: `pip install shortgop[s3]`")
    if not installed and not _environment(*_AWS_CREDENTIALS) and not _is_unsigned():
        file = next((path for path in aws_files() if _has_credentials(path)), None)
        if file is not None:
            raise ToolError(
                f"the credentials in {file} need boto3: `pip install shortgop[s3]`, or set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY"
            )
    return installed and (bool(profile) or any(path.is_file() for path in aws_files()))


def s3_client() -> Any:
    """boto3's client, for what obstore does not offer."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    session = boto3.Session()
    region = os.environ.get("AWS_REGION") or session.region_name or "us-east-1"
    # Amazon's answers differ from those of other stores in the checksums that recent clients want.
    config = Config(retries={"mode": "standard", "max_attempts": 8}, response_checksum_validation="when_required")
    if _is_unsigned():
        config = config.merge(Config(signature_version=UNSIGNED))
    # It does not know all names itself, and without one it would ask Amazon. Where the name of the server begins with
    # that of the bucket, boto3 would put it before the keys as well.
    endpoint = None if _is_set("AWS_VIRTUAL_HOSTED_STYLE_REQUEST") else _environment(*_ENDPOINTS["s3"]) or None
    return session.client("s3", region_name=region, endpoint_url=endpoint, config=config)


def _is_unsigned() -> bool:
    """Whether requests to S3 go without credentials, as to public buckets."""
    return _is_set("AWS_SKIP_SIGNATURE")


def _is_set(name: str) -> bool:
    """Whether a variable is one of the words that obstore takes for true."""
    return _environment(name).lower() in ("1", "true", "on", "yes", "y")


def _has_credentials(file: Path) -> bool:
    """Whether a file of the AWS tools has credentials of the default profile, or says where they come from."""
    settings = configparser.ConfigParser(strict=False)
    try:
        settings.read(file, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return False
    sections = [settings[name] for name in ("default", "profile default") if name in settings]
    return any(name in section for section in sections for name in _PROFILE_CREDENTIALS)


def aws_files() -> list[Path]:
    """Where the AWS tools keep profiles and keys. As it is where the user has no home folder: Path.expanduser raises
    RuntimeError there."""
    return [
        Path(os.path.expanduser(os.environ.get(name) or default))  # noqa: PTH111
        for name, default in (
            ("AWS_CONFIG_FILE", "~/.aws/config"),
            ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        )
    ]


def _from_profile() -> tuple[Any, S3Config]:
    """What provides credentials, None if they come from elsewhere, and the region and endpoint of the profile."""
    import boto3
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    config: S3Config = {}
    try:
        session = boto3.Session()
        resolved = session.client("s3", region_name=session.region_name or "us-east-1").meta.endpoint_url
        found = session.get_credentials()
    except (BotoCoreError, ValueError) as error:
        raise ToolError(f"the AWS settings of this user do not work: {error}") from error
    # boto3 itself does not know AWS_REGION, which counts more than the profile.
    if session.region_name and not _environment("AWS_REGION"):
        config["region"] = session.region_name
    if not (urlsplit(resolved).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        config["endpoint"] = resolved
    return (Boto3CredentialProvider(session) if found else None), config


class _Stay(urllib.request.HTTPRedirectHandler):
    """The answer of a bucket of another region is a redirection that names the region. Where it leads to need not be
    a name that the server has a certificate for."""

    def redirect_request(self, *_: Any) -> None:
        return None


@lru_cache(maxsize=64)
def bucket_region(endpoint: str, bucket: str) -> str:
    """The region of a bucket, which Amazon tells anyone who asks; "us-east-1" if it does not, as of no bucket. One
    request. OSError if it does not answer: a region that is guessed would stay wrong for this process. It has the words
    that errors of obstore have."""
    # Not as https://bucket.s3.amazonaws.com: a certificate holds for no name that has dots in the place of the bucket.
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="HEAD")  # noqa: S310
    try:
        with urllib.request.build_opener(_Stay).open(request, timeout=5) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            raise OSError(f"Error performing HEAD {request.full_url} {FOR_REGION}: {error}") from error
        headers = error.headers
    except (http.client.HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        kind = "Timeout" if isinstance(reason, TimeoutError) else "Connect"
        cause = (reason.strerror if isinstance(reason, OSError) else None) or reason
        raise OSError(
            f'Error performing HEAD {request.full_url} {FOR_REGION}: kind: {kind}, message: "{cause}"'
        ) from error
    return headers.get("x-amz-bucket-region") or "us-east-1"


def credentials_tried(scheme: str) -> str:
    """Which credentials a request was made with, as far as that can be told, for messages."""
    others = {
        "gs": "Google's default credentials (GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`)",
        "az": "Azure's settings (AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or a SAS token, or AZURE_USE_AZURE_CLI)",
    }
    if scheme == "hf":
        return token_tried()
    return _aws_credentials() if scheme == "s3" else others.get(scheme.replace("abfss", "az"), "no credentials")


def _aws_credentials() -> str:
    if key := _environment("AWS_ACCESS_KEY_ID"):
        return f"the key {key[:4]}... from AWS_ACCESS_KEY_ID"
    if profile := _environment("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        return f"the profile {profile!r} (AWS_PROFILE)"
    if _is_unsigned():
        return "none (AWS_SKIP_SIGNATURE)"
    if uses_boto3():
        return "the AWS files of this user (set AWS_PROFILE for another profile)"
    return (
        "the role of this machine, as neither AWS_ACCESS_KEY_ID nor credentials in a file of the AWS tools are there "
        "(for a public bucket set AWS_SKIP_SIGNATURE=true)"
    )


# Where users name the servers of stores.
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "abfss": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
}


def _endpoint(root: StoreRoot) -> str:
    """The server that the environment names, "" for none. ToolError for what is no URL: obstore would panic, which is
    no Exception."""
    names = _ENDPOINTS.get(root.scheme, ())
    for name in names:
        if (value := os.environ.get(name)) is not None and not is_server(value):
            raise ToolError(
                f"{name} is {value!r}, which is no server; write http://host:port or https://host, or unset it"
            )
    if root.scheme == "gs" and os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") == "":
        raise ToolError("GOOGLE_APPLICATION_CREDENTIALS is empty; name a file with a key, or unset it")
    return _environment(*names)


def _environment(*names: str) -> str:
    return next((value for name in names if (value := os.environ.get(name))), "")
