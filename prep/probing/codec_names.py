"""The name of a source's codec, by which all of prep's rules go."""

from __future__ import annotations

from av.codec.context import CodecContext


def codec_of(decoder: CodecContext) -> str:
    """FFmpeg's name of the codec, whichever decoder PyAV takes for it: "av1" also where that is libdav1d."""
    return decoder.codec.canonical_name
