"""What is tried before a job writes anything: where it fails here, it would fail in every worker."""

from __future__ import annotations

from ..errors import UsageError
from ..prep.profile import Profile
from ..prep.running.ffmpeg import find_ffmpeg
from ..prep.tools.tool_choice import check_tools
from ..storage.interface import Storage
from .units_of_work.where import Where


def refuse_own_memory(out: Storage, where: Where) -> None:
    """UsageError for a place that only this process sees, where others are to write to it."""
    if where.runner == "ray" and out.url.startswith("memory://"):
        raise UsageError(
            f"{out} is in the memory of this process, and Ray's workers are other processes; give a folder or a store, "
            "or --runner inline",
            file=out.url,
        )


def try_tools(profile: Profile, where: Where) -> None:
    """ToolError if ffmpeg is missing, or if the encoder or its preset does not run here. With a cluster the encoder is
    not tried: the cluster's workers may have encoders that this machine lacks."""
    find_ffmpeg()
    if where.cluster is None:
        check_tools(profile, use_gpu=where.uses_gpus)


def try_cluster(where: Where) -> None:
    """ToolError if the cluster cannot be joined, before anything is written for a new dataset. A job for an existing
    dataset need not try: it may find that all is done, and needs no cluster then."""
    if where.cluster is not None:
        from .cluster.ray_login import login_to_cluster, restored_login

        with restored_login():
            login_to_cluster(where.cluster)
