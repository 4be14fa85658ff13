"""Passes of a ClipLoader: left, several at a time, closed, and in forked processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shortgop
from left_open import open_files
from loader_helpers import (
    Shown,
    all_shown,
    clips,
    filled_from_the_environment,
    loader_of,
    own_workers,
    shown,
)
from shortgop.errors import DatasetWarning, UsageError

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="processes are looked up in /proc"),
    pytest.mark.usefixtures("no_other_loaders"),
]

# Where the machine has nothing else to do, scripts take a few seconds, and processes end within one.
SECONDS = 120


def test_a_loop_may_be_left_at_any_place(clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]) -> None:
    loader = loader_of(clips_dataset)
    before = 0
    for stop in (1, 3, 0, 2, 7, 1, 1, 1, 1):
        batches = iter(loader)
        assert [shown(next(batches)) for _ in range(stop)] == clips_shown[:stop]
        del batches
        before = before or len(open_files())
    assert all_shown(loader) == clips_shown
    # An iterator that was never asked for anything takes no memory, and that of others is used again.
    assert len(open_files()) <= before + 4
    assert len(own_workers()) == 2


def test_iter_starts_workers_and_nothing_else(clips_dataset: shortgop.ClipDataset) -> None:
    """As docs/training.md has it, for workers that start while the model is made."""
    sampler = shortgop.ElasticSampler(clips_dataset, 4)
    with shortgop.ClipLoader(clips_dataset, sampler, workers=2) as loader:
        before = set(own_workers())
        iter(loader)
        started = set(own_workers()) - before
        assert len(started) == 2
        sampler.set_epoch(3)
        assert next(iter(loader))["draw"].tolist() == list(sampler)[:4]
        assert set(own_workers()) - before == started


def test_a_state_that_is_loaded_within_a_loop_is_that_of_the_next_loop(
    clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]
) -> None:
    """A loop that went on to its end lost the state without a word."""
    loader = loader_of(clips_dataset, 0)
    batches = iter(loader)
    first: Any = next(batches)
    loader.load_state_dict(first.state)
    with pytest.warns(DatasetWarning, match=r"load_state_dict was called after .* goes on as it was"):
        rest = all_shown(batches)
    assert rest == clips_shown[1:]
    assert loader.state_dict() == first.state
    assert all_shown(loader) == clips_shown[1:]
    assert all_shown(loader) == clips_shown


def test_two_passes_at_once(clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]) -> None:
    loader = loader_of(clips_dataset)
    assert [(shown(one), shown(other)) for one, other in zip(loader, loader, strict=True)] == [
        (each, each) for each in clips_shown
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_is_left_leaves_others_alone(
    clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown], workers: int
) -> None:
    loader = loader_of(clips_dataset, workers)
    outer = iter(loader)
    seen = [shown(next(outer))]
    for _ in range(4):
        inner = iter(loader)
        assert [shown(next(inner)) for _ in range(2)] == clips_shown[:2]
        del inner
        seen.append(shown(next(outer)))
    assert [*seen, *all_shown(outer)] == clips_shown


@pytest.mark.long
def test_two_loaders_at_once(clips_dataset: shortgop.ClipDataset, clips_folder: Path, clips_shown: list[Shown]) -> None:
    one, other = loader_of(clips_dataset, 1), loader_of(clips(clips_folder), 2)
    both = [(shown(a), shown(b)) for a, b in zip(one, other, strict=True)]
    assert both == [(each, each) for each in clips_shown]


def test_a_loader_may_be_closed_during_a_pass(clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]) -> None:
    loader = loader_of(clips_dataset)
    batches = iter(loader)
    kept = next(batches)
    loader.close()
    assert not own_workers()
    with pytest.raises(UsageError, match="the ClipLoader was closed"):
        next(batches)
    assert shown(kept) == clips_shown[0]
    assert all_shown(loader) == clips_shown


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_refused_and_disturbs_nothing(
    clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]
) -> None:
    loader = loader_of(clips_dataset)
    batches = iter(loader)
    seen = [shown(next(batches))]
    context = multiprocessing.get_context("fork")
    said = context.SimpleQueue()
    attempts: list[Callable[[], Any]] = [lambda: next(batches), lambda: next(iter(loader))]

    def use() -> None:
        for attempt in attempts:
            try:
                attempt()
            except UsageError as error:
                said.put(str(error))
        loader.close()

    child = context.Process(target=use)
    child.start()
    child.join(SECONDS)
    assert child.exitcode == 0
    assert "this pass was begun in another process" in said.get()
    assert "this ClipLoader was made in another process" in said.get()
    assert [*seen, *all_shown(batches)] == clips_shown
    assert loader.stats().restarts == 0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_that_exits_on_its_own_disturbs_nothing(
    clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]
) -> None:
    """A child that drops its copy of the loader ends nothing of its parent's."""
    loader = loader_of(clips_dataset)
    batches = iter(loader)
    seen = [shown(next(batches))]
    child = os.fork()
    if child == 0:
        try:
            loader.close()
            del batches, loader
            gc.collect()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [*seen, *all_shown(batches)] == clips_shown


@pytest.mark.long
def test_workers_have_the_environment_of_now(clips_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork server keeps that of its start; the keys of a store may have come since."""
    loader = loader_of(clips(clips_folder, transform=filled_from_the_environment))
    assert int(next(iter(loader))["frames"].max()) == 0
    monkeypatch.setenv("SHORTGOP_TEST_LEVEL", "7")
    loader = loader_of(clips(clips_folder, transform=filled_from_the_environment))
    assert int(next(iter(loader))["frames"].min()) == 7


@pytest.mark.long
def test_workers_lack_what_was_taken_out_of_the_environment_and_keep_what_they_alone_have(
    tmp_path: Path, clips_folder: Path
) -> None:
    """Keys that a script has taken out would be used on, in place of those of a profile. What a script sets in workers
    alone was taken out, too."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(clips_folder)))
    environment = {**os.environ, "SHORTGOP_TEST_LEVEL": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["17", "10"]


SCRIPT = """
import os
from loader_helpers import clips, filled_from_the_environment, loader_of

if __name__ != "__main__":
    os.environ["SHORTGOP_TEST_ADDED"] = "10"

def filled(frames):
    return filled_from_the_environment(frames) + int(os.environ.get("SHORTGOP_TEST_ADDED", "0"))

if __name__ == "__main__":
    for _ in range(2):
        with loader_of(clips({folder!r}, transform=filled), workers=1) as loader:
            print(int(next(iter(loader))["frames"].max()))
        os.environ.pop("SHORTGOP_TEST_LEVEL", None)
"""
