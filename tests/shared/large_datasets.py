"""A dataset that is large beside what comes to it: with layers for datasets of any size, it grows by them."""

from __future__ import annotations

import json
from pathlib import Path

from dataset_places import place_of
from example_manifests import failure, video
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.tables import Manifest
from shortgop.storage.interface import Storage

# So many that a few more videos are little beside them.
MANY = 40


def old_video(number: int) -> Manifest:
    label = json.dumps({"label": number, "split": "train" if number % 2 else "test"})
    return video(f"v{number:02}", shard=f"old{number % 3}.shard", offset=10_000 * number, frames=9, attributes=label)


OLD = [merge([*map(old_video, range(MANY)), failure("x", "cut short"), failure("v99", "no video")])]


def published(place: Path | Storage, steps: list[list[Manifest]]) -> Storage:
    """A dataset that was published after each step's parts."""
    dataset = place_of(place)
    create(dataset, {})
    for step, parts in enumerate(steps):
        add(dataset, f"s{step}", *parts)
    return dataset


def add(dataset: Storage, unit: str, *parts: Manifest) -> str:
    for number, part in enumerate(parts):
        write_part(dataset, f"{unit}u{number:02}", part)
    return publish(dataset) or ""
