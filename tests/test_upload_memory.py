"""A shard goes up while it is written: neither memory nor the folder for temporary files holds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shortgop.storage.locate import storage_at

MEGABYTE = 1 << 20

UPLOAD = """
import os, sys
from process_memory import peak_bytes
from shortgop.storage.locate import storage_at

place, num_pieces = storage_at(sys.argv[1]), int(sys.argv[2])
place.put_new("first", b"the client is there")
before = peak_bytes()
upload = place.start("shards/long", ".shard")
for _ in range(num_pieces):
    upload.write(os.urandom(1 << 20))
print(upload.commit(), peak_bytes() - before)
"""


def test_a_long_shard_is_never_whole_on_this_host(s3_url: str, tmp_path: Path) -> None:
    num_pieces = 160
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", UPLOAD, s3_url, str(num_pieces)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    key, num_bytes = done.stdout.split()
    found = storage_at(s3_url).find(key)
    assert found is not None
    assert found.num_bytes == num_pieces * MEGABYTE
    # Four parts of 8 MiB are on their way, and what the client adds.
    assert int(num_bytes) < 80 * MEGABYTE
    assert list(tmp_path.rglob("*")) == []
