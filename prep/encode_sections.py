"""Encodes a section of a long source: several workers at once, each from a keyframe shortly before its section on.

`section_survey` has cut the source. Each section's encode is compared with its part of the grid as any other encode is
(`encode_run.py`). Whatever does not fit, such as damage, raises NotCutError: the source is then encoded whole, as if it
had never been cut. What a survey of a local file sees in the headers of all packets, a section of a file in a store
sees in those of its own.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np

from ..errors import SourceError
from ..manifests.tables import Manifest
from .command import Encode
from .decoding import DamageFoundError, look_closer
from .encode_run import Count, of_piece
from .gpu_attempts import attempt
from .kept_frames.damage import assess
from .kept_frames.scan import scan_stretch
from .manifest_rows import Identity, video_manifest
from .options import Options
from .part_of_file import PACKETS_BEHIND
from .probing.opening import open_source, packets_from, video_stream
from .probing.signs import PacketLog
from .probing.source_video import SourceVideo
from .running.ffmpeg import crops_by_itself
from .running.mounts import read_in_time
from .running.stalls import stall_limit
from .section_survey import NotCutError, Section
from .shards import ShardWriter
from .timing.pieces import Seek
from .tools.tool_choice import section_pipeline

# A section may lack the end of the file. So frames that seem to be missing at its end are looked for in this many
# further packets.
_SCANNED_BEHIND = PACKETS_BEHIND // 2


def encode_section(  # noqa: PLR0917  # six unrelated inputs
    path: str,
    section: Section,
    identity: Identity,
    options: Options,
    ffmpeg_path: str,
    shards: ShardWriter,
    on_frames: Count,
) -> Manifest:
    """Encode one section of the source at `path` into `shards`: its rows, as if it were a video. NotCutError if it does
    not fit the plan."""
    source = replace(section.plan.encode.source, path=path)
    encode = replace(section.plan.encode, source=source)
    needed = section.needed

    def look() -> None:
        if needed is None:
            look_closer(source)
        else:
            read_in_time(path, lambda: _look_closer_at(source, encode, needed.packets), "reading it")

    try:
        with stall_limit(float(options.policy.max_stall_seconds)):
            if needed is not None:
                read_in_time(path, lambda: _check_packets(source, encode.seek, needed.packets), "reading it")
            # All sections need one encoder, but each machine has its own decoder.
            pipeline = section_pipeline(ffmpeg_path, source, options.profile, use_gpu=options.use_gpu)
            if pipeline.encoder != encode.pipeline.encoder:
                raise NotCutError(f"{encode.pipeline.encoder} does not run on this machine")
            crops = source.crop is not None and crops_by_itself(ffmpeg_path)
            plan = replace(section.plan, encode=replace(encode, pipeline=pipeline, crops_by_itself=crops))
            videos = attempt(plan, ffmpeg_path, shards, on_frames, on_complaint=look)
    except (SourceError, DamageFoundError) as error:
        raise NotCutError(str(error)) from error
    if videos is None:
        raise NotCutError("ffmpeg shows other frames than planned")
    if videos[0].changes.given_up != section.given_up:
        raise NotCutError("its pictures change")
    video = videos[0]
    if options.profile.encoder == "auto":
        # What all sections share: which of them a GPU decoded makes no difference.
        video = replace(video, pipeline=encode.pipeline.to_json())
    return video_manifest(identity, of_piece(encode, 0), video)


def _check_packets(source: SourceVideo, seek: Seek | None, packets: int) -> None:
    """NotCutError if the headers of so many packets from an entry on show what a survey by the index cannot see."""
    with open_source(source.path) as container:
        stream = video_stream(source.path, container)
        log = PacketLog(stream.codec_context)
        entry = None if seek is None else round(seek.seconds / source.timebase)
        sized = (packet for packet in packets_from(container, stream, entry) if packet.size)
        for packet in islice(sized, packets):
            log.see(packet)
    if log.suspicion or log.aspect_changes:
        raise NotCutError(log.suspicion or "its pictures change")


def _look_closer_at(source: SourceVideo, encode: Encode, packets: int) -> None:
    """Scan this number of packets from the entry of a section on. NotCutError if a lost frame is shown at or after the
    entry. Frames before the entry lack their references here; they belong to the section before."""
    first_pts = None if encode.seek is None else round(encode.seek.seconds / source.timebase)
    last_pts = encode.pieces[-1].last_pts
    found = scan_stretch(
        source.path, source.stream_index, first_pts, packets + _SCANNED_BEHIND,
        has_unknown_delay=source.has_unknown_delay,
    )  # fmt: skip
    damage = assess(found, max_hole_units=np.iinfo(np.int64).max)
    if damage is None:
        return
    shown = [each.pts for each in found.packets if not each.is_hidden and each.pts is not None]
    ours = [pts for pts in shown if (first_pts is None or pts >= first_pts) and pts <= last_pts]
    if not (damage.has_times and np.isin(ours, damage.sound_pts).all()):
        raise NotCutError(damage.complaint)
