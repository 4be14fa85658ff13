"""The checks, most telling first: what each one answers, and how long it may take."""

from __future__ import annotations

from functools import partial

from check_report import Check

ENVIRONMENT, NVDEC = "environment", "nvdec-caps"
# They import nothing beside Python itself, and say whether to come back with wheels.
NEED_NO_WHEELS = (ENVIRONMENT, NVDEC)
# What the processes of all others import while an earlier check runs.
AHEAD = "most_imports"
# The environment variable with this machine's folder for temporary files: each check has one of its own below it.
TEMPORARY = "GPU_CHECK_TMPDIR"

_OnNvdec = partial(Check, needs_nvdec=True)
_Libavcodec = partial(_OnNvdec, ways=("libavcodec",))
_Libnvcuvid = partial(_OnNvdec, ways=("libnvcuvid",))
_Others = partial(_OnNvdec, ways=("other libraries",))
_BesideOthers = partial(_OnNvdec, ways=("libavcodec", "other libraries"))
_Copies = partial(Check, ways=("copies",))

CHECKS = (
    Check(ENVIRONMENT, "which GPU, driver, libraries and devices are here?", "gpu_environment:report", 100),
    Check(NVDEC, "what does NVDEC decode, in which sizes, on how many engines?", "gpu_capabilities:nvdec", 20),
    _Libavcodec("pyav-contexts", "does PyAV give CUDA frames in torch's context?", "gpu_decoding:torch_context", 60),
    _Libavcodec("pyav-pictures", "are all pictures right, H.264 and HEVC?", "gpu_pictures:all_pictures", 60),
    Check("convert-equal", "does the kernel give the CPU's pixels?", "gpu_conversion:equal", 90),
    _Libavcodec("reader-equal", 'is shortgop.open(device="cuda") right, frame by frame?', "gpu_reader:equal", 75),
    _Libavcodec(
        "reader-busy-streams", "also where the stream that uses frames is behind?", "gpu_reader:busy_streams", 45
    ),
    _Libavcodec("reader-loader", "is a loader over it right?", "gpu_reader:loader", 60),
    _Libavcodec(
        "reader-damaged", "is a damaged GOP an error, and the reader fine afterwards?", "gpu_reader:damaged", 30
    ),
    Check("reader-fallback", "is what the CPU decodes for the GPU right?", "gpu_reader:fallback", 30),
    _Libavcodec("reader-forked", "does a forked process get an error that says what to do?", "gpu_reader:forked", 30),
    _BesideOthers("bench-random-frames", "random frames/s beside other libraries?", "gpu_benchmarks:random_frames", 90),
    _BesideOthers("bench-long-videos", "frames/s of clips from 60 s and 3000 s?", "gpu_benchmarks:long_videos", 90),
    _Libavcodec("reader-engines", "does the reader keep the engines busy?", "gpu_engines:speed", 80),
    _Libnvcuvid("nvcuvid-parser", "when does libnvcuvid's parser call back?", "gpu_parser:callbacks", 30),
    _Libnvcuvid("nvcuvid-pictures", "are they also right through libnvcuvid itself?", "gpu_nvcuvid:all_pictures", 60),
    _Copies("loader-device", 'does ClipLoader(device="cuda") give the CPU\'s batches?', "gpu_loading:to_device", 60),
    _Copies("loader-slow-stream", "also where the stream that uses them is behind?", "gpu_loading:slow_stream", 60),
    _Copies("loader-pinned", "does pin_memory=True lock memory, and are copies faster?", "gpu_loading:pinned", 45),
    _Copies(
        "loader-pinned-dropped",
        "may a loop copy a batch without waiting, and drop it?",
        "gpu_loading:pinned_and_dropped",
        45,
    ),
    _Libavcodec("pyav-threads", "do fresh threads decode, each with its contexts?", "gpu_decoding:fresh_threads", 45),
    _Libavcodec("pyav-busy-streams", "are pictures right behind a long kernel?", "gpu_decoding:busy_streams", 45),
    _Libavcodec("pyav-held-frames", "do frames that are kept stay right?", "gpu_decoding:held_frames", 30),
    _BesideOthers("bench-scenarios", "frames/s of clips and frames, small and 720p?", "gpu_benchmarks:scenarios", 120),
    _Others("torchcodec", "is TorchCodec on the GPU right, and how fast?", "gpu_torchcodec:pictures", 60),
    _Libavcodec("pyav-speed", "frames/s of clips, NVDEC and CPU?", "gpu_decoding:speed", 90),
    _Libnvcuvid("nvcuvid-speed", "frames/s through libnvcuvid and libavcodec?", "gpu_nvcuvid:speed", 90),
    Check("convert-speed", "frames/s of the kernel, and of plain torch?", "gpu_conversion:speed", 45),
    _Copies("loader-registration", "is memory locked while it is used, and no longer?", "gpu_loading:registration", 30),
    _Copies("loader-forked", "is CUDA in a forked process our UsageError?", "gpu_loading:forked", 45),
    _Copies("loader-left-early", "are batches right where passes are left?", "gpu_loading:left_early", 45),
    _Libavcodec(
        "pyav-damaged-gop", "is a damaged GOP an error, and the next one right?", "gpu_decoding:damaged_gop", 20
    ),
    Check("nvenc-pyav", "which NVENC encoders run in PyAV?", "gpu_ffmpeg:pyav_nvenc", 30),
    _OnNvdec("ffmpeg-nvdec", "does the ffmpeg program decode on the GPU?", "gpu_ffmpeg:ffmpeg_nvdec", 40),
    Check("ffmpeg-nvenc", "which NVENC encoders run in the ffmpeg program?", "gpu_ffmpeg:ffmpeg_nvenc", 40),
    Check("prep-pipelines", "does each pipeline of prep make right datasets?", "gpu_prep:pipelines", 90),
    Check("prep-speed", "frames/s of each, one and eight at once, and engines' use?", "gpu_prep:speed", 90),
    Check("prep-quality", "PSNR and VMAF beside x264 at equal bytes?", "gpu_prep:quality", 90),
    _Libavcodec("reader-soak", "does memory grow over 10,000 clips?", "gpu_reader:soak", 75),
    _Copies("loader-soak", "does memory grow over 200 batches?", "gpu_loading:soak", 60),
    _Libavcodec(
        "pyav-other-contexts",
        "and with the other options for contexts?",
        "gpu_decoding:other_contexts",
        40,
        explains="pyav-contexts",
    ),
    _Libavcodec("pyav-no-context", "what does a thread without a context get?", "gpu_decoding:no_context", 30),
    _Libavcodec("pyav-soak", "does memory grow over 1000 GOPs?", "gpu_decoding:soak", 60),
    _Libnvcuvid("nvcuvid-soak", "does memory grow over 1000 GOPs through libnvcuvid?", "gpu_nvcuvid:soak", 60),
    Check("sanitizer", "is the kernel clean under compute-sanitizer?", "gpu_sanitizer:memcheck", 120),
)
