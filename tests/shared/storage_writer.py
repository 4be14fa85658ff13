"""A process that writes to a storage, beside others or until it is killed.

    python storage_writer.py URL put-new NAME COUNT     try to take COUNT keys; print those taken
    python storage_writer.py URL count NAME COUNT       add 1 to the number in the root COUNT times; print each sum
    python storage_writer.py URL upload                 hold the lock, begin an upload, say so and wait
    python storage_writer.py URL hold RENEWED ABANDONED  hold a lease with this timing, say so, and wait

What it prints is JSON. The two that run beside each other begin when a line comes on standard input.
"""

from __future__ import annotations

import json
import random
import sys

from shortgop.storage.lease import LeaseTiming, held
from shortgop.storage.locate import storage_at
from shortgop.storage.network import NetworkOptions
from shortgop.storage.objects import ObjectStorage


def main() -> None:
    url, what, *arguments = sys.argv[1:]
    storage = storage_at(url, network=NetworkOptions(first_backoff_seconds=0.01, retries=12))
    assert isinstance(storage, ObjectStorage)
    if what in ("put-new", "count"):
        name, count = arguments[0], int(arguments[1])
        storage.find("zarr.json")  # connects
        say("ready")
        sys.stdin.readline()
        say(put_new(storage, name, count) if what == "put-new" else add(storage, name, count))
    elif what == "upload":
        with storage.lock():
            upload = storage.start("shards/u1", ".shard")
            upload.write(bytes(20_000_000))
            say("ready")
            sys.stdin.read()
    elif what == "hold":
        with held(storage._bucket, LeaseTiming(*map(float, arguments))):
            say("ready")
            sys.stdin.read()
        say("released")


def say(content: object) -> None:
    print(json.dumps(content), flush=True)


def put_new(storage: ObjectStorage, name: str, count: int) -> list[str]:
    keys = [str(number) for number in range(count)]
    # Otherwise the process that is first with one key is first with all.
    random.Random(name).shuffle(keys)
    return [key for key in keys if storage.put_new(key, f"{name} {key}".encode())]


def add(storage: ObjectStorage, name: str, count: int) -> list[int]:
    written: list[int] = []
    while len(written) < count:
        with storage.open("zarr.json") as file:
            number = int(file.read(0, file.stored.num_bytes).split()[0])
        # With the name, since a process that finds the content that it was about to write takes it for its own.
        if storage.replace("zarr.json", f"{number + 1} {name}".encode(), file.stored.version):
            written.append(number + 1)
    return written


if __name__ == "__main__":
    main()
