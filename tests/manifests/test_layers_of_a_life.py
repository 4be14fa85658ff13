"""Whatever is done to a dataset, it says the same with layers as without them."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datasets import make_dataset
from layers_everywhere import layers_everywhere
from shortgop.errors import MissingDataError
from shortgop.manifests.dataset_files.snapshots import open_current, open_manifest, timeline_of
from shortgop.manifests.dataset_files.tidy import tidy
from shortgop.manifests.dataset_files.video_columns import LabelColumns
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.rollback import rollback
from shortgop.manifests.operations.verify import verify
from shortgop.manifests.parsed_columns import derived_columns
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.manifests.tables import Manifest
from shortgop.storage.disk import DiskStorage
from sweep import SWEEP
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

NAMES = ("a.mp4", "b.mp4", "c.mp4", "d.mp4")
RATE = Fraction(25)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos in two shards, and a source that failed."""
    folder = tmp_path_factory.mktemp("original")
    for number, name in enumerate(NAMES):
        make_video(folder / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)
    (folder / "broken.mp4").write_text("not a video")
    make_dataset([folder / "a.mp4", folder / "b.mp4", folder / "broken.mp4"], folder / "dataset")
    make_dataset([folder / "c.mp4", folder / "d.mp4"], folder / "dataset")
    return folder / "dataset"


@dataclass
class Twin:
    """A dataset to which things are done, the snapshots that it had, and manifests that are held open."""

    path: Path
    layered: bool
    had: list[str] = field(default_factory=list)
    held: list[tuple[Manifest, dict[str, Any]]] = field(default_factory=list)

    @property
    def place(self) -> DiskStorage:
        return DiskStorage(self.path / "dataset")

    def do(self, what: str, number: int, label: Any) -> Any:
        """What was done, as far as it does not name shards or snapshots."""
        video = NAMES[number % len(NAMES)]
        with layers_everywhere() if self.layered else contextlib.nullcontext():
            match what:
                case "label":
                    annotate(self.place, {video: {"label": label}})
                case "unlabel":
                    annotate(self.place, {}, remove=["label"])
                case "drop":
                    return drop(self.place, [video, "broken.mp4"]).ids
                case "back":
                    # What a snapshot needs may be gone, and then it is in both.
                    with contextlib.suppress(MissingDataError):
                        return rollback(self.place, self.had[number]).restored
                case "gc":
                    collect(self.place, keep_snapshots_seconds=3600.0 * (number % 2))
                case "tidy":
                    tidy(self.place, 0.0)
                case "compact":
                    compact(self.place)
                case "copy":
                    other = DiskStorage(self.path / "copied")
                    copy_videos([self.place], other)
                    shutil.rmtree(self.path / "dataset")
                    (self.path / "copied").rename(self.path / "dataset")
                    self.had.clear()
        return None

    def has(self, number: int) -> bool:
        """Whether the snapshot after this step is still there: one that is a layer of another stays for longer."""
        return self.place.find(f"manifest/{self.had[number]}.zip") is not None

    def said(self) -> dict[str, Any]:
        """What its current snapshot says, decoded and from a copy of the host."""
        root, manifest = open_current(self.place)
        snapshot = root.snapshot or ""
        self.had.append(snapshot)
        assert [str(problem) for problem in verify(self.place, manifest, snapshot=snapshot)] == []
        copied = open_manifest(self.place, snapshot, copies=HostCopies(self.path / "copies", min_bytes=0))
        found = content(manifest)
        assert content(copied) == found
        self.held.append((copied, found))
        labels = LabelColumns(self.place, snapshot, manifest)
        for name, column in derived_columns(manifest.videos.attributes).items():
            assert repr(labels[name].array().tolist()) == repr(column.array().tolist()) or labels.kind(name) == "float"
        pts = timeline_of(self.place, snapshot, manifest, range(len(manifest.videos)))
        return {**found, "pts": pts.tolist()}


def content(manifest: Manifest) -> dict[str, Any]:
    return {
        "ids": manifest.ids,
        "attributes": [json.loads(text or "{}") for text in manifest.videos.attributes.texts()],
        "crc32": manifest.gops.crc32.tolist(),
        "failures": manifest.failures.id.texts(),
        "drops": manifest.drops.id.texts(),
    }


STEPS = st.tuples(
    st.sampled_from(["label", "label", "unlabel", "drop", "back", "back", "gc", "tidy", "compact", "copy"]),
    st.integers(0, 11),
    st.sampled_from([1, 2.5, "x", None, [1]]),
)


@given(st.lists(STEPS, min_size=1, max_size=6))
@example([("label", 0, 1), ("tidy", 0, 1), ("back", 2, 1)])
@settings(max_examples=60 if SWEEP else 6, deadline=None)
def test_a_dataset_with_layers_says_what_one_without_says(original: Path, steps: list[tuple[str, int, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        twins = [Twin(Path(folder) / name, layered=name == "layers") for name in ("plain", "layers")]
        for twin in twins:
            shutil.copytree(original, twin.path / "dataset")
            twin.said()
        for what, number, label in steps:
            step = what, number, label
            if what == "back":
                there = [each for each in range(len(twins[0].had)) if all(twin.has(each) for twin in twins)]
                step = what, there[-min(len(there), 1 + number % 3)], label
            done, other = (twin.do(*step) for twin in twins)
            assert done == other
            one, two = (twin.said() for twin in twins)
            assert one == two
        # A reader keeps the tables that it holds, even if their snapshots and copies were removed.
        for manifest, found in (each for twin in twins for each in twin.held):
            assert content(manifest) == found
