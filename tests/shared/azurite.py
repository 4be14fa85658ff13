"""Azure's blob store on loopback: Azurite, Microsoft's own emulator, in a process of its own.

It is a program of Node.js: `npm install azurite`, and put `node_modules/.bin` on the PATH, or name `azurite-blob` there
in SHORTGOP_AZURITE.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

CONTAINER = "corpus"
# The account that every Azurite has, and its key, which Microsoft publishes.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
HOW_TO_GET_IT = (
    "Azurite is not there: `npm install azurite`, and put node_modules/.bin on the PATH or set SHORTGOP_AZURITE to "
    "node_modules/.bin/azurite-blob"
)


def program() -> str | None:
    """The path of Azurite's program for blobs; None if there is none."""
    return shutil.which(os.environ.get("SHORTGOP_AZURITE") or "azurite-blob")


def with_key(address: str) -> dict[str, str]:
    """What makes plain az:// URLs mean this server, in this process and its children: requests are signed by the key
    of the account."""
    return {**_account(address), "AZURE_STORAGE_KEY": KEY}


def with_token(address: str) -> dict[str, str]:
    """The same, with a token in place of the key. Azurite removes nothing for it: it knows no batches with a token."""
    return {**_account(address), "AZURE_STORAGE_SAS_TOKEN": _token()}


def _account(address: str) -> dict[str, str]:
    return {"AZURE_STORAGE_ENDPOINT": f"{address}/{ACCOUNT}", "AZURE_STORAGE_ACCOUNT": ACCOUNT}


SETTINGS = (
    *("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    *("AZURE_STORAGE_USE_EMULATOR", "AZURE_SKIP_SIGNATURE"),
)


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """The address of a new server, without its account, which holds one empty container. It keeps all in memory."""
    found = program()
    assert found is not None, HOW_TO_GET_IT
    # A client newer than the server asks for a version of the protocol that the server does not know by its number.
    options = ["--skipApiVersionCheck", "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    command = [found, "--blobHost", "127.0.0.1", "--blobPort", "0", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            listens = (re.search(r"successfully listens on (http://[\d.:]+)", line) for line in process.stdout)
            address = next((each[1] for each in listens if each), "")
            assert address, "Azurite did not start"
            _make_container(f"{address}/{ACCOUNT}", CONTAINER)
            yield address
        finally:
            process.kill()


def _make_container(endpoint: str, name: str) -> None:
    """Make a container, which obstore cannot do."""
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container&{_token()}", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201


def _token() -> str:
    """A token that allows everything in the account."""
    version, until = "2023-11-03", "2099-01-01T00:00:00Z"
    allowed, services, kinds = "rwdlac", "b", "sco"
    # https://learn.microsoft.com/rest/api/storageservices/create-account-sas
    lines = (ACCOUNT, allowed, services, kinds, "", until, "", "", version, "", "")
    signature = hmac.digest(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256)
    fields = {"sv": version, "ss": services, "srt": kinds, "sp": allowed, "se": until}
    return urlencode({**fields, "sig": base64.b64encode(signature).decode()})
