"""Scans a source that may be damaged: decodes every packet, and adds what the file itself says is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from ..probing.codec_names import codec_of
from ..probing.containers.chains import lacks_movi
from ..probing.containers.mp4_fragments import Unread, unread_fragments
from ..probing.containers.next_file import Chain, chain_of
from ..probing.containers.programs import frames_meanwhile
from ..probing.containers.transport_packets import Continuity, continuity_of, has_only_zeros_behind
from ..probing.containers.unread import ANOTHER_FRAGMENTED, LEFT_OUT, MEANWHILE, is_fragmented, unread_video
from ..probing.containers.zero_tail import zeros_from
from ..probing.holes import spacing_of
from ..probing.opening import HOLDING_BACK, demuxer_of, open_source, packets_from, packets_of, stream_at
from ..probing.playlists import segments_of
from ..probing.signs import NO_CHAIN, cut_index, may_lack_an_end, promised_end, promises_more_chunks
from .complaints import first_complaint
from .scanned import Scan, in_doubt
from .scanner import Beforehand, Scanner


@dataclass(frozen=True)
class _Source:
    """A source that is open to be scanned, and what its chain of chunks and its fragments say."""

    path: str
    container: InputContainer
    stream: VideoStream
    chain: Chain
    fragments: Unread

    @property
    def is_transport(self) -> bool:
        return self.container.format.name == "mpegts"


def scan(path: str, stream_index: int, *, has_unknown_delay: bool = False) -> Scan:
    """Decode a stream packet by packet. The result has what demuxer and decoder log about each packet."""
    with _complaints_heard(), ExitStack() as stack:
        with av.logging.Capture() as heard:
            container = stack.enter_context(open_source(path))
        stream = _video(container, stream_index, has_unknown_delay=has_unknown_delay)
        fragments = unread_fragments(path, stream.id) if is_fragmented(container, stream) else Unread()
        source = _Source(path, container, stream, chain_of(path, demuxer_of(container)), fragments)
        packets = packets_of(container, stream, source.chain.next_begin)
        scanner = Scanner(container, stream, packets, _beforehand(source))
        said = first_complaint([message for _level, name, message in heard if name.startswith("matroska")])
        found = _with_left_out(_with_said_while_opening(scanner.run(), said), fragments)
        found = _with_end(found, source, scanner)
        return _with_unread(found, source, scanner.last_position)


def scan_stretch(
    path: str, stream_index: int, first_pts: int | None, packets: int, *, has_unknown_delay: bool = False
) -> Scan:
    """Scan the packets of this number of frames, beginning with the one at `first_pts`, to which the container can seek
    (None: the first)."""
    with open_source(path) as container, _complaints_heard():
        stream = _video(container, stream_index, has_unknown_delay=has_unknown_delay)
        return Scanner(container, stream, packets_from(container, stream, first_pts), most=packets).run()


def _video(container: InputContainer, stream_index: int, *, has_unknown_delay: bool) -> VideoStream:
    stream = stream_at(container, stream_index)
    if has_unknown_delay:
        stream.codec_context.options = HOLDING_BACK
    return stream


def _beforehand(source: _Source) -> Beforehand:
    path, stream, broken_at = source.path, source.stream, source.chain.broken
    known = Beforehand(
        break_at=broken_at.position if broken_at and not broken_at.is_end else None,
        zeros_from=zeros_from(path),
        missing_before=source.fragments.missing_before,
    )
    if source.container.format.name == "hls":
        return replace(known, continuity=cache(partial(_continuity_of_playlist, path, stream)))
    if not source.is_transport:
        return known
    return replace(
        known,
        ends_in_zeros=has_only_zeros_behind(path),
        # Few scans ask, and it reads the whole file.
        continuity=cache(partial(continuity_of, path, stream.id, codec_of(stream.codec_context))),
    )


def _continuity_of_playlist(path: str, stream: VideoStream) -> Continuity | None:
    """What the counters of the segments say that an HLS playlist names, each of which may begin them anew. FFmpeg gives
    positions as in one file."""
    segments = segments_of(path)
    if not segments:
        return None
    with open_source(segments[0].path) as container:
        is_transport = container.format.name == "mpegts" and stream.index < len(container.streams)
        pid = container.streams[stream.index].id if is_transport else None
    return None if pid is None else continuity_of(segments, pid, codec_of(stream.codec_context))


def _with_said_while_opening(found: Scan, said: str) -> Scan:
    """The scan with what the demuxer of Matroska said while it opened the file, for which it reads the first packets:
    it goes on at the next cluster, so that frames are missing before the first one that comes late, if times are even.
    """
    times = sorted(packet.pts for packet in found.packets if packet.pts is not None and not packet.is_hidden)
    spacing = spacing_of(times)
    if not (said and spacing.is_even):
        return found
    behind = next((later for pts, later in pairwise(times) if spacing.is_hole(pts, later, later - pts)), None)
    packets = list(found.packets)
    for number, packet in enumerate(packets):
        if behind is not None and packet.pts is not None and packet.pts >= behind:
            packets[number] = replace(packet, break_before=packet.break_before or said)
            break
    return replace(found, packets=tuple(packets))


def _with_left_out(found: Scan, fragments: Unread) -> Scan:
    """The scan with the frames of fragments that are left out or missing as lost ones."""
    if not fragments.left_out:
        return replace(found, unread=fragments.missing)
    hidden = [packet.pts for packet in found.packets if packet.is_hidden and packet.pts is not None]
    lost = {*hidden} - {packet.pts for packet in found.packets if not packet.is_hidden}
    packets = tuple(
        replace(each, is_hidden=False, complaint=each.complaint or LEFT_OUT) if each.pts in lost else each
        for each in found.packets
    )
    # Others have the times of frames that are shown: nothing is known of them but their number.
    uncounted = max(0, min(fragments.left_out, len(hidden)) - len(lost))
    stopped = found.stopped or (LEFT_OUT if uncounted and not fragments.is_joined else "")
    return replace(found, packets=packets, stopped=stopped, unread=fragments.missing + uncounted)


def _with_end(found: Scan, source: _Source, scanner: Scanner) -> Scan:
    """The scan with what the container says of the end of the stream: that it is incomplete, or comes later."""
    path, stream, broken_at = source.path, source.stream, source.chain.broken
    if may_lack_an_end(path, source.container, stream, (scanner.last_end, scanner.last_pictures), broken_at):
        ends_early = found.ends_early or not source.is_transport
        found = replace(found, packets=tuple(in_doubt(found.packets, 1)), ends_early=ends_early)
    last_dts = found.packets[-1].dts if found.packets else None
    promises_more = promises_more_chunks(source.container, stream, len(found.packets), last_dts)
    if promises_more and lacks_movi(path):
        # Those that are missing may be the first ones, so that no time is right.
        found = replace(found, stopped=NO_CHAIN, timed=0)
    promised, reached = promised_end(stream), scanner.latest_pts * (stream.time_base or Fraction(1))
    is_short = promised is not None and promised - reached > 1
    is_cut = broken_at is not None and broken_at.is_cut
    return replace(found, ends_early=found.ends_early or is_short or promises_more or is_cut)


def _with_unread(found: Scan, source: _Source, last_position: int | None) -> Scan:
    """The scan with what there is behind its last packet, at `last_position`, that was not read."""
    path, container, stream = source.path, source.container, source.stream
    cut = cut_index(path, container, stream)
    unread = unread_video(path, container, stream, last_position, source.chain.next_begin)
    if unread == MEANWHILE:
        # The stream itself is all there.
        found, unread = replace(found, unread=frames_meanwhile(path, stream.id), left_out=unread), ""
    elif not unread and source.fragments.is_joined:
        unread = ANOTHER_FRAGMENTED
    if cut:
        found = replace(found, unread=max(0, stream.frames - len(found.packets)))
    return replace(found, stopped=cut or unread or found.stopped)


@contextmanager
def _complaints_heard() -> Iterator[None]:
    level, skips = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)
    try:
        # What is said while other files are opened belongs to no packet, and would be printed.
        with av.logging.Capture():
            yield
    finally:
        av.logging.set_level(level)
        av.logging.set_skip_repeated(skips)
