"""All pictures of the samples through PyAV, whose libavcodec has NVDEC decode them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from check_record import Record
from gpu_decoding import Contexts, cuda_contexts, every_fourth, every_frame, ready
from libav_log import logged
from picture_verdicts import Verdicts
from sample_gops import Gop, Planes, check_each_codec, cpu_pictures, cuda_planes, decoded, gops_of, samples

_SEED = 0


def all_pictures(record: Record) -> None:
    """Every picture of every sample shows its number and equals the CPU's, in any order of GOPs, with any left out."""
    ready()

    def check(codec_name: str) -> None:
        gops = gops_of(samples(record, codec_name))
        expected = cpu_pictures(gops)
        contexts, verdicts = cuda_contexts(), Verdicts(record, codec_name)
        rng = random.Random(_SEED)  # noqa: S311  # no secrets
        ways = {"all": every_frame, "every fourth": every_fourth, "the last": _last, "some": _some(rng)}
        for what, frames_of in ways.items():
            for number in rng.sample(range(len(gops)), len(gops)):
                gop = gops[number]
                frames = frames_of(len(gop.pattern))
                if not verdicts.is_hopeless(gop):
                    with verdicts.request(gop, frames, what):
                        look_at(contexts, gop, expected[number], frames, verdicts)
        verdicts.end()

    check_each_codec(check)


def look_at(
    contexts: Contexts, gop: Gop, expected: Sequence[Planes], frames: Sequence[int], verdicts: Verdicts
) -> None:
    """Decode these frames of a GOP, and have each looked at. RuntimeError with what libavcodec logs, where it fails,
    and its context is not used again."""
    texts: list[str] = []
    try:
        with logged() as texts:
            for number, frame in decoded(contexts.of(gop.config), gop, frames):
                planes = cuda_planes(frame)
                verdicts.lies(gop, planes)
                verdicts.look(gop, number, planes, expected[number])
    except Exception as error:
        contexts.forget(gop.config)
        raise RuntimeError(f"{type(error).__name__}: {error} ({'; '.join(texts) or 'nothing was logged'})") from error


def _last(frames: int) -> Sequence[int]:
    return [frames - 1]


def _some(rng: random.Random) -> Callable[[int], Sequence[int]]:
    return lambda frames: sorted(rng.sample(range(frames), min(frames, 3)))
