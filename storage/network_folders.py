"""Which folders of this host are not its own: several hosts may have them at once."""

from __future__ import annotations

import os
import re
from pathlib import Path

# Their hosts see each other's writes late, and may take a file away that another host has mapped.
_SHARED = re.compile(r"nfs4?|cifs|smb3|lustre|gpfs|beegfs|ceph|afs|fuse\.(glusterfs|ceph|sshfs|s3fs|gcsfuse)")
_MOUNTS = "/proc/self/mountinfo"


def shared_between_hosts(folder: Path, mounts: str | None = None) -> str | None:
    """The type of the network file system that a folder lies on, or would if it was made. None for a disk of this host,
    and where the system does not say. `mounts` is the content of mountinfo, see proc(5)."""
    if mounts is None:
        try:
            mounts = Path(_MOUNTS).read_text(errors="replace")
        except OSError:
            return None
    # Symbolic links of what is there are followed.
    path, found, kind = Path(os.path.realpath(folder)), -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4]))
        # The last of those that are mounted at one place is the one that is seen.
        if path.is_relative_to(point) and len(point.parts) >= found:
            found, kind = len(point.parts), after.split(" ")[0]
    return kind if _SHARED.fullmatch(kind) else None
