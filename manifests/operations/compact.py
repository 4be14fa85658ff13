"""Small shards put together, and the layers of a snapshot: fewer files, and longer reads. Nothing is encoded again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...storage.interface import Storage
from ..dataset_files.in_place import changing
from ..dataset_files.publish import publish
from ..dataset_files.root_file import read_root
from ..dataset_files.snapshot_files import layers_below
from ..dataset_files.snapshots import open_current
from ..dataset_files.tidy import KEEP_SECONDS, tidy
from ..shared_memory.host_copies import copies_in
from .lost import lost_shards
from .moving import DEFAULT_SHARD_BYTES
from .rewrite import plan_compaction, rewrite
from .stored_bytes import live_bytes


@dataclass(frozen=True)
class Compacted:
    """What `compact` did, or would do: `shards` were put together and became `new_shards`, of `num_bytes` altogether.
    `snapshot` is the current one. Of a large dataset it had as many `layers`, and has none now; 0 where it had none."""

    shards: int
    new_shards: int
    num_bytes: int
    snapshot: str
    layers: int = 0


def compact(
    dataset: Storage,
    *,
    shard_bytes: int | None = None,
    dry_run: bool = False,
    keep_snapshots_seconds: float = KEEP_SECONDS,
    on_shard: Callable[[], object] = lambda: None,
) -> Compacted:
    """Put shards below half of `shard_bytes`, by default that of the dataset's profile, together into ones of about
    that length. Videos keep their bytes.

    The old shards stay as long as a snapshot needs them: those that have not been current for `keep_snapshots_seconds`
    are removed, and the shards with them. `on_shard` is called after each new shard. NotADatasetError if there is no
    dataset, DatasetBusyError if a job writes to it, CorruptDataError if a shard is damaged. A command that is killed
    goes on where it was when it is run again.
    """
    read_root(dataset)
    if dry_run:
        return _compact(dataset, shard_bytes, lambda: None, dry_run=True)
    with changing(dataset):
        publish(dataset)
        is_done = False
        try:
            done = _compact(dataset, shard_bytes, on_shard, dry_run=False)
            is_done = True
        finally:
            publish(dataset, whole=is_done)
        tidy(dataset, keep_snapshots_seconds)
        return replace(done, snapshot=read_root(dataset).snapshot or "")


def _compact(dataset: Storage, shard_bytes: int | None, on_shard: Callable[[], object], *, dry_run: bool) -> Compacted:
    root, manifest = open_current(dataset, copies=copies_in(None))
    wanted = shard_bytes or int(root.profile.get("shard_bytes", DEFAULT_SHARD_BYTES))
    plans = plan_compaction(manifest, wanted, lost=lost_shards(dataset, manifest))
    for plan in [] if dry_run else plans:
        rewrite(dataset, root.snapshot or "", manifest, plan, root.profile)
        on_shard()
    shards = [shard for plan in plans for shard in plan.shards]
    below = layers_below(dataset, root.snapshot or "")
    return Compacted(
        shards=len(shards),
        new_shards=sum(len(plan.groups) for plan in plans),
        num_bytes=int(live_bytes(manifest)[shards].sum()),
        snapshot=root.snapshot or "",
        layers=len(below) + 1 if below else 0,
    )
