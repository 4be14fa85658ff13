"""The layout of libnvcuvid's structures.

The numbers were printed by gcc on x86-64 from include/ffnvcodec/dynlink_cuviddec.h and dynlink_nvcuvid.h of
nv-codec-headers n13.0.19.0. Where $NV_CODEC_HEADERS names the folder that holds these two, gcc prints them again.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shortgop.readers.gpu import nvcuvid_structs as structs
from shortgop.readers.gpu.nvdec_caps import DecodeCapsStruct

# The structure, its size, and by the header's names the offsets of what is read and written.
LAYOUTS: dict[str, tuple[type[ctypes.Structure], dict[str, str]]] = {
    "CUVIDEOFORMAT": (
        structs.VideoFormat,
        {
            "codec": "codec",
            "progressive_sequence": "progressive_sequence",
            "bit_depth_luma_minus8": "bit_depth_luma_minus8",
            "min_num_decode_surfaces": "min_num_decode_surfaces",
            "coded_width": "coded_width",
            "coded_height": "coded_height",
            "display_area": "display_area",
            "chroma_format": "chroma_format",
            "video_signal_description": "signal_flags",
            "video_signal_description.matrix_coefficients": "matrix_coefficients",
            "seqhdr_data_length": "seqhdr_data_length",
        },
    ),
    "CUVIDEOFORMATEX": (structs.VideoFormatEx, {"raw_seqhdr_data": "raw_seqhdr_data"}),
    "CUVIDSOURCEDATAPACKET": (
        structs.SourceDataPacket,
        {"flags": "flags", "payload_size": "payload_size", "payload": "payload", "timestamp": "timestamp"},
    ),
    "CUVIDPARSERDISPINFO": (
        structs.ParserDisplayInfo,
        {"picture_index": "picture_index", "timestamp": "timestamp"},
    ),
    "CUVIDPICPARAMS": (
        structs.PictureParams,
        {
            "CurrPicIdx": "picture_index",
            "field_pic_flag": "field_pic_flag",
            "nBitstreamDataLen": "bitstream_bytes",
            "pBitstreamData": "bitstream",
            "ref_pic_flag": "ref_pic_flag",
            "CodecSpecific": "codec_specific",
        },
    ),
    "CUVIDPARSERPARAMS": (
        structs.ParserParams,
        {
            "CodecType": "codec",
            "ulMaxNumDecodeSurfaces": "max_num_decode_surfaces",
            "ulClockRate": "clock_rate",
            "ulErrorThreshold": "error_threshold",
            "ulMaxDisplayDelay": "max_display_delay",
            "pUserData": "user_data",
            "pfnSequenceCallback": "on_sequence",
            "pfnDecodePicture": "on_decode",
            "pfnDisplayPicture": "on_display",
            "pExtVideoInfo": "extended_format",
        },
    ),
    "CUVIDDECODECREATEINFO": (
        structs.DecodeCreateInfo,
        {
            "ulWidth": "width",
            "ulHeight": "height",
            "ulNumDecodeSurfaces": "num_decode_surfaces",
            "CodecType": "codec",
            "ChromaFormat": "chroma_format",
            "bitDepthMinus8": "bit_depth_minus8",
            "ulMaxWidth": "max_width",
            "ulMaxHeight": "max_height",
            "display_area": "display_area",
            "OutputFormat": "output_format",
            "DeinterlaceMode": "deinterlace_mode",
            "ulTargetWidth": "target_width",
            "ulTargetHeight": "target_height",
            "ulNumOutputSurfaces": "num_output_surfaces",
            "vidLock": "context_lock",
            "target_rect": "target_rect",
        },
    ),
    "CUVIDRECONFIGUREDECODERINFO": (
        structs.ReconfigureInfo,
        {
            "ulWidth": "width",
            "ulHeight": "height",
            "ulTargetWidth": "target_width",
            "ulTargetHeight": "target_height",
            "ulNumDecodeSurfaces": "num_decode_surfaces",
            "display_area": "display_area",
            "target_rect": "target_rect",
        },
    ),
    "CUVIDPROCPARAMS": (
        structs.ProcessingParams,
        {
            "progressive_frame": "progressive_frame",
            "raw_input_dptr": "raw_input",
            "output_stream": "output_stream",
            "histogram_dptr": "histogram",
        },
    ),
    "CUVIDGETDECODESTATUS": (structs.DecodeStatus, {"decodeStatus": "status", "pReserved": "reserved_pointers"}),
    "CUVIDDECODECAPS": (DecodeCapsStruct, {"bIsSupported": "is_supported", "nMinHeight": "min_height"}),
}
# Size, then offsets in the order above.
EXPECTED: dict[str, tuple[int, ...]] = {
    "CUVIDEOFORMAT": (64, 0, 12, 13, 15, 16, 20, 24, 40, 56, 59, 60),
    "CUVIDEOFORMATEX": (1088, 64),
    "CUVIDSOURCEDATAPACKET": (32, 0, 8, 16, 24),
    "CUVIDPARSERDISPINFO": (24, 0, 16),
    "CUVIDPICPARAMS": (4280, 8, 12, 24, 32, 56, 184),
    "CUVIDPARSERPARAMS": (136, 0, 4, 8, 12, 16, 40, 48, 56, 64, 128),
    "CUVIDDECODECREATEINFO": (176, 0, 8, 16, 24, 28, 40, 56, 64, 80, 88, 92, 96, 104, 112, 120, 128),
    "CUVIDRECONFIGUREDECODERINFO": (128, 0, 4, 8, 12, 16, 68, 76),
    "CUVIDPROCPARAMS": (264, 0, 24, 56, 248),
    "CUVIDGETDECODESTATUS": (192, 0, 128),
    "CUVIDDECODECAPS": (88, 24, 42),
}


def layout(name: str) -> tuple[int, ...]:
    structure, fields = LAYOUTS[name]
    return ctypes.sizeof(structure), *(getattr(structure, field).offset for field in fields.values())


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_structure_has_the_layout_of_the_header(name: str) -> None:
    assert layout(name) == EXPECTED[name]


@pytest.mark.skipif("NV_CODEC_HEADERS" not in os.environ, reason="NV_CODEC_HEADERS names no folder with the headers")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_gcc_finds_the_same_layouts_in_the_header(tmp_path: Path) -> None:
    lines = []
    for name, (_, fields) in LAYOUTS.items():
        offsets = [f"offsetof({name}, {field})" for field in fields]
        printed = ", ".join(["sizeof(" + name + ")", *offsets])
        lines.append(f'printf("{name}{" %zu" * (1 + len(offsets))}\\n", {printed});')
    source = tmp_path / "layouts.c"
    files = (
        "<stddef.h>",
        "<stdio.h>",
        "<string.h>",
        *(f'"dynlink_{each}.h"' for each in ("cuda", "cuviddec", "nvcuvid")),
    )
    headers = "\n".join(f"#include {each}" for each in files)
    source.write_text(f"{headers}\nint main(void) {{ {' '.join(lines)} return 0; }}\n")
    program = tmp_path / "layouts"
    subprocess.run(["gcc", f"-I{os.environ['NV_CODEC_HEADERS']}", str(source), "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], stdout=subprocess.PIPE, check=True, text=True).stdout
    found = {name: tuple(map(int, numbers)) for name, *numbers in map(str.split, printed.splitlines())}
    assert found == {name: layout(name) for name in LAYOUTS}
