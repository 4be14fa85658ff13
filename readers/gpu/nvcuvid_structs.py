"""The structures that libnvcuvid takes and gives, for ctypes on x86-64 Linux.

Layouts and numbers are those of nv-codec-headers n13.0.19.0 (Video Codec SDK 13.0): dynlink_cuviddec.h and
dynlink_nvcuvid.h in include/ffnvcodec. Fields that nothing here uses lie in `reserved` ones, and stay 0.
"""

from __future__ import annotations

import ctypes

CHROMA_420 = 1  # cudaVideoChromaFormat_420
SURFACE_NV12, SURFACE_P016 = 0, 1  # cudaVideoSurfaceFormat
WEAVE = 0  # cudaVideoDeinterlaceMode_Weave: frames as they are
# CUvideopacketflags
END_OF_STREAM, TIMESTAMP, END_OF_PICTURE = 0x01, 0x02, 0x08
# cuvidDecodeStatus
STATUS_ERROR, STATUS_CONCEALED = 8, 9


class LongRect(ctypes.Structure):
    """A rectangle of CUVIDEOFORMAT."""

    _fields_ = tuple((side, ctypes.c_int) for side in ("left", "top", "right", "bottom"))


class ShortRect(ctypes.Structure):
    """A rectangle of CUVIDDECODECREATEINFO and CUVIDRECONFIGUREDECODERINFO."""

    _fields_ = tuple((side, ctypes.c_short) for side in ("left", "top", "right", "bottom"))


class VideoFormat(ctypes.Structure):
    """CUVIDEOFORMAT: what the parser read from a stream's parameter sets."""

    _fields_ = (
        ("codec", ctypes.c_int),
        ("frame_rate", ctypes.c_uint * 2),
        ("progressive_sequence", ctypes.c_ubyte),
        ("bit_depth_luma_minus8", ctypes.c_ubyte),
        ("bit_depth_chroma_minus8", ctypes.c_ubyte),
        ("min_num_decode_surfaces", ctypes.c_ubyte),
        ("coded_width", ctypes.c_uint),
        ("coded_height", ctypes.c_uint),
        ("display_area", LongRect),
        ("chroma_format", ctypes.c_int),
        ("bitrate", ctypes.c_uint),
        ("display_aspect_ratio", ctypes.c_int * 2),
        # Three bits of video_format, video_full_range_flag, four that are reserved.
        ("signal_flags", ctypes.c_ubyte),
        ("color_primaries", ctypes.c_ubyte),
        ("transfer_characteristics", ctypes.c_ubyte),
        ("matrix_coefficients", ctypes.c_ubyte),
        ("seqhdr_data_length", ctypes.c_uint),
    )

    @property
    def full_range(self) -> bool:
        return bool(self.signal_flags & 0x08)


class VideoFormatEx(ctypes.Structure):
    """CUVIDEOFORMATEX."""

    _fields_ = (("format", VideoFormat), ("raw_seqhdr_data", ctypes.c_ubyte * 1024))


class SourceDataPacket(ctypes.Structure):
    """CUVIDSOURCEDATAPACKET: an access unit for the parser."""

    _fields_ = (
        ("flags", ctypes.c_ulong),
        ("payload_size", ctypes.c_ulong),
        ("payload", ctypes.c_char_p),
        ("timestamp", ctypes.c_longlong),
    )

    def __str__(self) -> str:
        return f"{self.payload_size} bytes, flags {self.flags}"


class ParserDisplayInfo(ctypes.Structure):
    """CUVIDPARSERDISPINFO: a picture in the order of display."""

    _fields_ = (
        ("picture_index", ctypes.c_int),
        ("progressive_frame", ctypes.c_int),
        ("top_field_first", ctypes.c_int),
        ("repeat_first_field", ctypes.c_int),
        ("timestamp", ctypes.c_longlong),
    )


class PictureParams(ctypes.Structure):
    """CUVIDPICPARAMS: a picture in decode order, which goes from the parser to the decoder as it is."""

    _fields_ = (
        ("width_in_macroblocks", ctypes.c_int),
        ("height_in_macroblocks", ctypes.c_int),
        ("picture_index", ctypes.c_int),
        ("field_pic_flag", ctypes.c_int),
        ("bottom_field_flag", ctypes.c_int),
        ("second_field", ctypes.c_int),
        ("bitstream_bytes", ctypes.c_uint),
        ("bitstream", ctypes.c_void_p),
        ("num_slices", ctypes.c_uint),
        ("slice_offsets", ctypes.c_void_p),
        ("ref_pic_flag", ctypes.c_int),
        ("intra_pic_flag", ctypes.c_int),
        ("reserved", ctypes.c_uint * 30),
        ("codec_specific", ctypes.c_uint * 1024),
    )

    def __str__(self) -> str:
        return (
            f"{self.width_in_macroblocks}x{self.height_in_macroblocks} macroblocks into surface {self.picture_index}, "
            f"{self.bitstream_bytes} bytes in {self.num_slices} slices"
        )


SequenceCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(VideoFormat))
DecodeCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(PictureParams))
DisplayCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ParserDisplayInfo))


class ParserParams(ctypes.Structure):
    """CUVIDPARSERPARAMS."""

    _fields_ = (
        ("codec", ctypes.c_int),
        ("max_num_decode_surfaces", ctypes.c_uint),
        ("clock_rate", ctypes.c_uint),
        ("error_threshold", ctypes.c_uint),
        ("max_display_delay", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("reserved1", ctypes.c_uint * 4),
        ("user_data", ctypes.c_void_p),
        ("on_sequence", SequenceCallback),
        ("on_decode", DecodeCallback),
        ("on_display", DisplayCallback),
        ("on_operating_point", ctypes.c_void_p),
        ("on_sei_message", ctypes.c_void_p),
        ("reserved2", ctypes.c_void_p * 5),
        ("extended_format", ctypes.POINTER(VideoFormatEx)),
    )


class DecodeCreateInfo(ctypes.Structure):
    """CUVIDDECODECREATEINFO."""

    _fields_ = (
        ("width", ctypes.c_ulong),
        ("height", ctypes.c_ulong),
        ("num_decode_surfaces", ctypes.c_ulong),
        ("codec", ctypes.c_int),
        ("chroma_format", ctypes.c_int),
        ("creation_flags", ctypes.c_ulong),
        ("bit_depth_minus8", ctypes.c_ulong),
        ("intra_decode_only", ctypes.c_ulong),
        ("max_width", ctypes.c_ulong),
        ("max_height", ctypes.c_ulong),
        ("reserved1", ctypes.c_ulong),
        ("display_area", ShortRect),
        ("output_format", ctypes.c_int),
        ("deinterlace_mode", ctypes.c_int),
        ("target_width", ctypes.c_ulong),
        ("target_height", ctypes.c_ulong),
        ("num_output_surfaces", ctypes.c_ulong),
        ("context_lock", ctypes.c_void_p),
        ("target_rect", ShortRect),
        ("enable_histogram", ctypes.c_ulong),
        ("reserved2", ctypes.c_ulong * 4),
    )

    def __str__(self) -> str:
        return (
            f"codec {self.codec}, {self.bit_depth_minus8 + 8} bits, {self.width}x{self.height} of at most "
            f"{self.max_width}x{self.max_height} to {self.target_width}x{self.target_height} in format "
            f"{self.output_format}, {self.num_decode_surfaces} and {self.num_output_surfaces} surfaces"
        )


class ReconfigureInfo(ctypes.Structure):
    """CUVIDRECONFIGUREDECODERINFO."""

    _fields_ = (
        ("width", ctypes.c_uint),
        ("height", ctypes.c_uint),
        ("target_width", ctypes.c_uint),
        ("target_height", ctypes.c_uint),
        ("num_decode_surfaces", ctypes.c_uint),
        ("reserved1", ctypes.c_uint * 12),
        ("display_area", ShortRect),
        ("target_rect", ShortRect),
        ("reserved2", ctypes.c_uint * 11),
    )

    def __str__(self) -> str:
        return (
            f"{self.width}x{self.height} to {self.target_width}x{self.target_height}, {self.num_decode_surfaces} "
            "surfaces"
        )


class ProcessingParams(ctypes.Structure):
    """CUVIDPROCPARAMS: how a picture is mapped."""

    _fields_ = (
        ("progressive_frame", ctypes.c_int),
        ("second_field", ctypes.c_int),
        ("top_field_first", ctypes.c_int),
        ("unpaired_field", ctypes.c_int),
        ("reserved_flags", ctypes.c_uint),
        ("reserved_zero", ctypes.c_uint),
        ("raw_input", ctypes.c_ulonglong),
        ("raw_input_pitch", ctypes.c_uint),
        ("raw_input_format", ctypes.c_uint),
        ("raw_output", ctypes.c_ulonglong),
        ("raw_output_pitch", ctypes.c_uint),
        ("reserved1", ctypes.c_uint),
        ("output_stream", ctypes.c_void_p),
        ("reserved", ctypes.c_uint * 46),
        ("histogram", ctypes.c_void_p),
        ("reserved2", ctypes.c_void_p * 1),
    )


class DecodeStatus(ctypes.Structure):
    """CUVIDGETDECODESTATUS."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("reserved", ctypes.c_uint * 31),
        ("reserved_pointers", ctypes.c_void_p * 8),
    )
