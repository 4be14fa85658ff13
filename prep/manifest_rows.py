"""The result of one encode, and its rows in the manifest's tables."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from ..manifests.merging.edits import drops_table, edits_table
from ..manifests.mp4 import Init
from ..manifests.ragged import Array, from_rows, from_texts
from ..manifests.records import Pattern, SourceChanges
from ..manifests.tables import (
    Configs,
    Gops,
    Manifest,
    Segments,
    Shards,
    Timeline,
    Videos,
    failures_table,
    patterns_table,
)
from .command import Encode


@dataclass(frozen=True)
class Identity:
    """What identifies a source in the dataset: its id, the source as given and as an absolute path, the other columns
    of the source list as JSON, and the fingerprint of its contents."""

    id: str
    source: str
    path: str
    attributes: str
    identity: int


@dataclass(frozen=True)
class EncodedGop:
    """The position, length and CRC-32 of a GOP in its shard, and its pattern."""

    offset: int
    length: int
    crc32: int
    pattern: Pattern


@dataclass(frozen=True)
class EncodedSegment:
    """The shard of a segment, its offset there, and the length and CRC-32 of its init."""

    shard: str
    offset: int
    init_length: int
    init_crc32: int


@dataclass(frozen=True, eq=False)
class EncodedVideo:
    """The result of one encode. `timeline`: the source pts of each frame. `changes`: how the video differs from the
    source. `pipeline`: what decoded, scaled and encoded it, as the manifest records it."""

    init: Init
    segments: tuple[EncodedSegment, ...]
    gops: tuple[EncodedGop, ...]
    timeline: Array
    changes: SourceChanges
    pipeline: str


def video_manifest(identity: Identity, encode: Encode, video: EncodedVideo) -> Manifest:
    """The rows of one video. Its shards are not complete yet, so their lengths are 0 here."""
    init = video.init
    shards = list(dict.fromkeys(segment.shard for segment in video.segments))
    patterns = list(dict.fromkeys(gop.pattern for gop in video.gops))
    timebase = encode.source.timebase
    return Manifest(
        videos=Videos(
            id=from_texts([identity.id]),
            source=from_texts([identity.source]),
            attributes=from_texts([identity.attributes]),
            identity=np.array([identity.identity], dtype="<u8"),
            fps_num=np.array([encode.fps.numerator], dtype="<i8"),
            fps_den=np.array([encode.fps.denominator], dtype="<i8"),
            num_frames=np.array([encode.num_frames], dtype="<i8"),
            gop_frames=np.array([encode.profile.gop_frames], dtype="<i4"),
            segment_gops=np.array([encode.segment_gops], dtype="<i4"),
            config=np.zeros(1, dtype="<i4"),
            timebase_num=np.array([timebase.numerator], dtype="<i8"),
            timebase_den=np.array([timebase.denominator], dtype="<i8"),
            path=from_texts([identity.path]),
            given_up=from_texts([json.dumps(video.changes.given_up)]),
            dropped=np.array([_count(video.changes.dropped)], dtype="<i8"),
            repeated=np.array([_count(video.changes.repeated)], dtype="<i8"),
            salvaged=from_rows([[frame for run in video.changes.salvaged for frame in run]], "<i8"),
            revision=np.zeros(1, dtype="<i4"),
            after_edit=np.zeros(1, dtype="<i8"),
        ),
        segments=Segments(
            shard=np.array([shards.index(segment.shard) for segment in video.segments], dtype="<i4"),
            offset=np.array([segment.offset for segment in video.segments], dtype="<i8"),
            init_length=np.array([segment.init_length for segment in video.segments], dtype="<i4"),
            init_crc32=np.array([segment.init_crc32 for segment in video.segments], dtype="<u4"),
        ),
        gops=Gops(
            offset=np.array([gop.offset for gop in video.gops], dtype="<i8"),
            length=np.array([gop.length for gop in video.gops], dtype="<i4"),
            crc32=np.array([gop.crc32 for gop in video.gops], dtype="<u4"),
            pattern=np.array([patterns.index(gop.pattern) for gop in video.gops], dtype="<i4"),
        ),
        patterns=patterns_table([(pattern.frames, pattern.referenced) for pattern in patterns]),
        configs=Configs(
            codec=from_texts([init.codec]),
            extradata=from_rows([init.extradata]),
            width=np.array([init.width], dtype="<i4"),
            height=np.array([init.height], dtype="<i4"),
            primaries=np.array([init.primaries], dtype="u1"),
            transfer=np.array([init.transfer], dtype="u1"),
            matrix=np.array([init.matrix], dtype="u1"),
            full_range=np.array([init.full_range], dtype="u1"),
            pipeline=from_texts([video.pipeline]),
        ),
        shards=Shards(name=from_texts(shards), length=np.zeros(len(shards), dtype="<i8")),
        failures=failures_table([]),
        edits=edits_table([]),
        drops=drops_table({}),
        timeline=Timeline(pts=video.timeline),
    )


def _count(count: int | None) -> int:
    return -1 if count is None else count
