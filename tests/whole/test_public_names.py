"""The public names, all of them: a new one is added here on purpose, and one that goes is a broken promise."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import shortgop


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words("""
    CorruptDataError DamagedSourceError Dataset DatasetBusyError DatasetError DatasetWarning DecodeError EncodeError
    ClipBatch FormatVersionError Frame FrameBatch FrameIndexError MissingDataError NotADatasetError NotAVideoError
    OutputError ShortGopError SourceError SourceNotFoundError Stats TooManyFailuresError ToolError UnreadableDataError
    UsageError Video VideoNotFoundError WrongTypeError __version__ open
    AllClips BucketSampler CenterClips Chunked ClassBalanced ClassBatches ClipDataset ClipLoader ClipTable ClipsAt
    ClipsBy Continued ElasticSampler LeRobotClips LoaderStats MixedClips Mixture MultiRate Offsets OneClipPerVideo
    Output RandomClips RandomFrames SegmentFrames Sequential Shuffled Stretches Systematic UniformClips Weighted
    annotate best_chunk chunk_correlation effective_batch_size gops_per_sample measured_chunk_correlation prepare
    ray_dataset
    Failure Progress Report
""")

VIDEO = _words("""
    attributes changes cpu_fallback get_all_frames get_frame_at get_frame_played_at get_frames_at get_frames_in_range
    get_frames_played_at get_frames_played_in_range id metadata source source_path source_pts source_seconds
    source_timebase stream_index
""")

DATASET = _words("columns device failures get_clips ids lost_ids metadata stats to_pandas to_table where")


def public(kind: type) -> list[str]:
    return sorted(name for name in dir(kind) if not name.startswith("_"))


def test_the_package_has_just_these_names() -> None:
    assert sorted(shortgop.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(shortgop, name) is not None


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"]
    assert shortgop.__version__ == project["version"]


def test_videos_and_datasets_have_just_these_names() -> None:
    assert public(shortgop.Video) == sorted(VIDEO)
    assert public(shortgop.Dataset) == sorted(DATASET)


def test_every_public_name_says_what_it_is_for() -> None:
    for name in NAMES:
        if name != "__version__":
            assert inspect.getdoc(getattr(shortgop, name)), name
    for kind, names in ((shortgop.Video, VIDEO), (shortgop.Dataset, DATASET)):
        for name in names:
            assert inspect.getdoc(getattr(kind, name)), f"{kind.__name__}.{name}"
