"""The ffmpeg command line of one encode, as a pure function of its plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..errors import EncodeError
from .kept_frames.joins import Join
from .kept_frames.kept import Kept
from .pictures.picture_filters import (
    closing_filters,
    colour_tags,
    deinterlace_filters,
    pad_filters,
    picture_filters,
    steady_filters,
    without_colours,
)
from .pictures.sizes import picture_layout
from .probing.opening import FRAGMENT_BY_FRAGMENT, HOLDING_BACK, WITHOUT_EDITS, input_argv
from .probing.source_video import SourceVideo
from .profile import Profile
from .running.frame_report import STATS_FORMAT
from .stated_twice import message_filter
from .timing.expressions import sum_of
from .timing.grid import TickRule
from .timing.pieces import Piece, Seek
from .timing.tick_filters import piece_filters, repeat_filters, time_filters
from .tools.encoder_options import encoder_options
from .tools.gpu_filters import GRAIN_SHOWN, decoding_options, downloaded, scaled_on_gpu
from .tools.pipelines import Pipeline

# The ticks per second of the output are a multiple of the numerator of its rate, so that a frame lasts a whole number
# of ticks. Players expect an MP4 to have at least this many.
_MIN_TIMESCALE = 10_000
# MAX_ARG_STRLEN of Linux, with the zero at the end.
_MOST_ARGUMENT_BYTES = 128 * 1024 - 1


@dataclass(frozen=True)
class Encode:
    """One planned encode: everything that the command line depends on. `crops_by_itself`: this ffmpeg crops as the
    source's container states, unless the command line forbids that. `steps`: where ffmpeg counts frames, each is at the
    tick of its number, and from each of these joins on so many ticks later; None where frames have times. `pieces`: the
    stretches of the source that the output consists of, one after the other; without any it is the whole source.
    `seek`: where reading starts, if not at the start. `converts_first`: pictures are converted before they are repeated
    (`FrameGrid.converts_first`)."""

    source: SourceVideo
    rule: TickRule
    num_frames: int
    width: int
    height: int
    profile: Profile
    pipeline: Pipeline
    crops_by_itself: bool = False
    kept: Kept | None = None
    joins: tuple[Join, ...] = ()
    steps: tuple[Join, ...] | None = None
    pieces: tuple[Piece, ...] = ()
    seek: Seek | None = None
    converts_first: bool = False

    @property
    def piece_frames(self) -> list[int]:
        """How many frames each piece of the output has."""
        return [len(piece.grid) for piece in self.pieces] or [self.num_frames]

    @property
    def fps(self) -> Fraction:
        """Frames per second of the output."""
        return self.rule.fps

    @property
    def timescale(self) -> int:
        """Ticks per second of the output."""
        return self.fps.numerator * -(-_MIN_TIMESCALE // self.fps.numerator)

    @property
    def frame_ticks(self) -> int:
        return int(self.timescale / self.fps)

    @property
    def segment_gops(self) -> int:
        """How many GOPs a segment has: the whole number nearest to the profile's `segment_seconds`."""
        return max(1, round(self.profile.segment_seconds * self.fps / self.profile.gop_frames))


def encode_argv(encode: Encode, stats_url: str) -> list[str]:
    """Arguments for ffmpeg. It reads the source, writes fragmented MP4 to its standard output, one fragment per GOP,
    and writes one line per frame in STATS_FORMAT to `stats_url`. EncodeError if that is longer than Linux takes."""
    source = encode.source
    argv = [
        "-hide_banner", "-nostdin", "-nostats", "-v", "error",
        *decoding_options(encode.pipeline),
        # One thread each: many one-thread encodes side by side beat one encode with many threads.
        "-threads", "1", "-filter_threads", "1",
        *(["-max_error_rate", "1"] if encode.kept is not None else []),
        # ffmpeg's own crop rounds to even columns and does not adapt when the resolution changes.
        *(["-apply_cropping", "codec"] if encode.crops_by_itself else []),
        *_input_options(source), *_seek_options(encode.seek), *input_argv(source.path, source.demuxer),
        "-map", f"0:{source.stream_index}", "-map_metadata", "-1", "-map_chapters", "-1",
        "-vf", ",".join(_filters(encode)),
        "-fps_mode", "passthrough", "-frames:v", str(encode.num_frames),
        *encoder_options(encode.pipeline, encode.profile, encode.piece_frames),
        *_colour_tags(source),
        "-stats_enc_pre", stats_url, "-stats_enc_pre_fmt", STATS_FORMAT,
        "-video_track_timescale", str(encode.timescale), "-fflags", "+bitexact",
        # delay_moov writes the moov after the first fragment, with an edit list for the delay that B-frames cause.
        # write_colr writes the colour tags that are known even where one of the three is not.
        "-movflags", "+frag_keyframe+delay_moov+default_base_moof+skip_trailer+write_colr",
        "-f", "mp4", "pipe:1",
    ]  # fmt: skip
    if any(len(os.fsencode(argument)) > _MOST_ARGUMENT_BYTES for argument in argv):
        raise EncodeError(
            f"{source.path} has too many damaged places, gaps or joined recordings: ffmpeg's filters for them would be "
            f"longer than Linux takes ({_MOST_ARGUMENT_BYTES} bytes); remux or re-encode the file first",
            file=source.path,
        )
    return argv


def decode_argv(source: SourceVideo, stats_url: str) -> list[str]:
    """Arguments for ffmpeg. It decodes the source and writes one line per frame in STATS_FORMAT to `stats_url`."""
    return [
        "-hide_banner", "-nostdin", "-nostats", "-v", "error", "-threads", "1",
        *_input_options(source), *input_argv(source.path, source.demuxer),
        "-map", f"0:{source.stream_index}", "-fps_mode", "passthrough", "-c:v", "wrapped_avframe",
        # Without this, the pts are in ticks of the frame rate that the container states.
        "-enc_time_base", "demux",
        "-stats_enc_pre", stats_url, "-stats_enc_pre_fmt", STATS_FORMAT, "-f", "null", "-",
    ]  # fmt: skip


def quality_argv(
    source: SourceVideo, profile: Profile, wanted_pts: Sequence[int], seek: Seek | None, *, crops_by_itself: bool
) -> list[str]:
    """Arguments for ffmpeg. It turns the source's frames with these pts, which rise, into those of the encoded video,
    and compares them with raw ones of its standard input. It writes a line for each frame to its standard output, by
    the filter psnr, and another one by ssim. Nothing is deinterlaced, which would need the frames between."""
    layout = picture_layout(source, profile)
    timebase = source.timebase
    numbered = ["settb=1", "setpts=N"]
    wanted = [
        f"settb={timebase.numerator}/{timebase.denominator}",
        f"trim=end_pts={wanted_pts[-1] + 1}",
        f"select='{sum_of(f'eq(pts,{pts})' for pts in wanted_pts)}'",
        *steady_filters(source), *picture_filters(source, profile), *numbered,
    ]  # fmt: skip
    # ffmpeg would convert the ones to the range and matrix of the others.
    encoded = ["format=yuv420p", *closing_filters(source), *numbered]
    graph = (
        f"[0:{source.stream_index}]{','.join(wanted)},split[p][s];[1:v]{','.join(encoded)}[e];"
        "[e][p]psnr=stats_file=-:shortest=1:repeatlast=0[f];[f][s]ssim=stats_file=-:shortest=1:repeatlast=0[all]"
    )
    return [
        "-hide_banner", "-nostats", "-v", "error", "-threads", "1", "-filter_complex_threads", "1",
        *(["-apply_cropping", "codec"] if crops_by_itself else []),
        *_input_options(source), *_seek_options(seek), *input_argv(source.path, source.demuxer),
        "-f", "rawvideo", "-pixel_format", "yuv420p", "-video_size", f"{layout.width}x{layout.height}", "-i", "pipe:0",
        "-filter_complex", graph, "-map", "[all]", "-f", "null", "-",
    ]  # fmt: skip


def _input_options(source: SourceVideo) -> list[str]:
    decoder, index = source.picture.decoder, source.stream_index
    opened = {
        **(WITHOUT_EDITS if source.is_without_edits else {}),
        **(FRAGMENT_BY_FRAGMENT if source.is_by_fragment else {}),
    }
    told = {
        **(HOLDING_BACK if source.has_unknown_delay else {}),
        # FFmpeg takes frames for corrupt behind a first one of which it does not know that decoding may start there.
        **({"flags": "+output_corrupt"} if source.begins_unmarked else {}),
    }
    return [
        *([f"-c:{index}", decoder] if decoder else []),
        *(word for name, value in told.items() for word in (f"-{name}:{index}", value)),
        *([f"-bsf:{index}", ",".join(filters)] if (filters := _packet_filters(source)) else []),
        *(word for name, value in opened.items() for word in (f"-{name}", value)),
        # ffmpeg would move a recording that begins earlier than the first by a period, and then the one behind it.
        *(["-correct_ts_overflow", "0"] if source.is_joined else []),
        # Source timestamps stay unchanged, so that the pts in STATS_FORMAT can be compared with the plan.
        "-copyts",
        # One filter graph for the whole source, also where its pictures change. It rotates them as well.
        "-reinit_filter", "0", "-noautorotate",
    ]  # fmt: skip


def _packet_filters(source: SourceVideo) -> list[str]:
    """Bitstream filters before decoding, which ffmpeg takes from version 8 on."""
    return [
        # ffmpeg fails on frames of which two places state an orientation or a kind of stereo 3D.
        *([message_filter(source.codec)] if source.picture.stated_twice else []),
        # Where times do not rise, libavcodec would take those of decoding from then on, which may be frames later.
        *(["setts=pts=PTS:dts=NOPTS"] if source.repeats_times else []),
    ]


def _seek_options(seek: Seek | None) -> list[str]:
    """Reading starts at the last keyframe up to this time of the file. No frame behind it is left out."""
    if seek is None:
        return []
    return ["-seek_timestamp", "1", "-noaccurate_seek", "-ss", f"{float(seek.seconds):.6f}"]


def _filters(encode: Encode) -> list[str]:
    source = encode.source
    decoded = [GRAIN_SHOWN] if encode.pipeline.decoding == "nvdec" else []
    times = (
        piece_filters(encode.pieces, encode.joins)
        if encode.pieces
        else time_filters(encode.rule, encode.num_frames, encode.joins, encode.steps)
    )
    kept = [] if encode.kept is None else [_selection(encode.kept)]
    if encode.pipeline.scaling == "scale_cuda":
        layout = picture_layout(source, encode.profile)
        scaled = scaled_on_gpu(source.coded_size, layout.scaled, downloads=encode.pipeline.downloads)
        pictures = [*scaled, *pad_filters(layout), *closing_filters(source)]
        return [*decoded, *kept, without_colours(source), *times, *_in_order(encode, pictures)]
    if encode.pipeline.decoding == "nvdec":
        decoded += downloaded(source)
    return [
        *decoded,
        *kept,
        *steady_filters(source),
        *deinterlace_filters(source, encode.profile),
        *times,
        *_in_order(encode, picture_filters(source, encode.profile)),
    ]


def _in_order(encode: Encode, pictures: list[str]) -> list[str]:
    """Filters that convert the pictures and repeat frames."""
    repeated = repeat_filters(encode.fps)
    return [*pictures, *repeated] if encode.converts_first else [*repeated, *pictures]


def _selection(kept: Kept) -> str:
    """Removes lost frames before the other filters."""
    runs = sum_of(f"between({kept.variable},{first},{last})" for first, last in kept.runs)
    return f"select='{runs}'"


def _colour_tags(source: SourceVideo) -> list[str]:
    """For older ffmpegs, whose encoders do not take the colour tags from the frames."""
    primaries, transfer, matrix = colour_tags(source)
    return [
        "-color_range", "tv", "-colorspace", str(matrix),
        "-color_primaries", str(primaries), "-color_trc", str(transfer),
    ]  # fmt: skip
