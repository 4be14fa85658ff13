"""The memory of a ClipLoader's batches: what shares it keeps it, and what nothing shares is used again."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shortgop
from loader_helpers import (
    BATCH_BYTES,
    Shown,
    all_shown,
    loader_of,
)
from shortgop.errors import DatasetWarning, UsageError
from shortgop.machine_memory import memory_limit_bytes
from shortgop.training.loader import batch_memory
from shortgop.training.loader.arena import Arena, bytes_held
from shortgop.training.loader.batch_memory import room_for
from shortgop.training.loader.batch_rows import Areas, rows_for
from training_videos import make_videos

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="processes are looked up in /proc"),
    pytest.mark.usefixtures("no_other_loaders"),
]

GIGABYTE = 1 << 30


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("memory"))


@pytest.mark.long
def test_batches_that_are_kept_for_ever_are_copied(
    clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]
) -> None:
    num_bytes = 4 * BATCH_BYTES
    loader = loader_of(clips_dataset, prefetch_bytes=num_bytes)
    for epoch in range(2):
        with pytest.warns(DatasetWarning, match="keeps so many batches") if not epoch else contextlib.nullcontext():
            kept = list(loader)
        assert all_shown(kept) == clips_shown
        # The last batches need leave no memory to others.
        assert (epoch + 1) * (len(clips_shown) - 4) <= loader.stats().copied_batches < (epoch + 1) * len(clips_shown)


def as_slice(frames: torch.Tensor) -> Any:
    return frames[1:3, :, 2]


def as_array(frames: torch.Tensor) -> Any:
    return frames.numpy()[::2]


def by_dlpack(frames: torch.Tensor) -> Any:
    return np.from_dlpack(frames)


def as_memory(frames: torch.Tensor) -> Any:
    array: Any = frames.numpy()
    return memoryview(array)


def content(kept: Any) -> Any:
    return np.array(kept.numpy() if isinstance(kept, torch.Tensor) else kept)


@pytest.mark.first_case_short
@pytest.mark.filterwarnings("ignore:epoch 0 begins for the third time")
@pytest.mark.parametrize(
    ("keep", "inference"),
    [(as_slice, False), (as_array, False), (by_dlpack, False), (as_memory, False), (as_slice, True), (by_dlpack, True)],
)
def test_what_shares_a_batch_keeps_its_memory(
    clips_dataset: shortgop.ClipDataset,
    clips_shown: list[Shown],
    keep: Callable[[torch.Tensor], Any],
    inference: bool,
) -> None:
    loader = loader_of(clips_dataset, prefetch_bytes=4 * BATCH_BYTES)
    batches = iter(loader)
    with torch.inference_mode(inference):
        batch = next(batches)
        kept = keep(batch["frames"])
        before = content(kept)
        del batch
        gc.collect()
        for _ in range(2):
            assert len(list(map(id, batches))) >= len(clips_shown) - 1
            assert np.array_equal(content(kept), before)
            batches = iter(loader)
        assert loader.stats().copied_batches == 0
        # And given back: another batch may have the memory then.
        del kept
    assert all_shown(batches) == clips_shown


def test_memory_is_used_again_once_nothing_shares_it(videos: Path) -> None:
    """More batches than slots, none of them kept: none is copied, and few addresses come up."""
    dataset = shortgop.ClipDataset(videos, shortgop.AllClips(2), size=(128, 128))
    loader = shortgop.ClipLoader(
        dataset, shortgop.ElasticSampler(dataset, 2), workers=0, prefetch_bytes=4 * 2 * (2 * 3 * 128 * 128 + 1000)
    )
    addresses = {batch["frames"].data_ptr() for batch in loader}
    assert len(addresses) <= 4
    assert loader.stats().batches == 35
    assert loader.stats().copied_batches == 0


def test_batches_of_hundreds_of_megabytes_need_no_option(videos: Path) -> None:
    """Such as those of LeRobot policies: 32 items of two frames of two cameras, 640x480 as floats, have 472 MB."""
    dataset = shortgop.ClipDataset(videos, shortgop.AllClips(1), size=(2048, 2048), dtype=torch.float32)
    with shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 8), workers=0) as loader:
        batch = next(iter(loader))
    assert batch["frames"].nbytes > (1 << 30) // 3


def test_loaders_have_a_quarter_of_the_memory_divided_among_the_ranks() -> None:
    """And half of it, where that is needed for the fewest batches."""
    whole, a_batch = memory_limit_bytes(), memory_limit_bytes() // 16
    room = partial(room_for, 3, 20, given=None, ranks=1, held=0)
    assert room(1000) == GIGABYTE
    assert room(a_batch) == max(GIGABYTE, whole // 4)
    assert room(2 * a_batch) == max(GIGABYTE, 6 * a_batch)
    assert room(3 * a_batch) == max(GIGABYTE, whole // 2)
    assert room(a_batch, ranks=4) == max(GIGABYTE, whole // 8)
    # What other loaders hold counts for more batches than the fewest.
    assert room(a_batch, held=whole // 4 - 1) == max(GIGABYTE, 3 * a_batch)
    assert room(a_batch, held=whole) == max(GIGABYTE, 3 * a_batch)
    # What is given is a bound.
    assert room(whole, given=500) == 500


def test_batches_for_which_a_gigabyte_is_enough_take_no_more() -> None:
    """Also where more of them would be better: each pass takes its memory at once."""
    room = partial(room_for, 3, 4, given=None, ranks=1, held=0)
    assert room(GIGABYTE // 3) == GIGABYTE
    assert room(GIGABYTE // 3 + 1) > GIGABYTE


@pytest.fixture
def small_machine(videos: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., shortgop.ClipLoader]:
    """Makes loaders of batches of 500 kB, which need three; a gigabyte is a megabyte, and the machine has eight."""
    monkeypatch.setattr(batch_memory, "_USUAL_BYTES", 1 << 20)
    monkeypatch.setattr(batch_memory, "memory_limit_bytes", lambda: 8 << 20)
    dataset = shortgop.ClipDataset(videos, shortgop.AllClips(2), size=(128, 128))

    def loader(**options: Any) -> shortgop.ClipLoader:
        return shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 5), workers=0, **options)

    return loader


def count(batches: shortgop.ClipLoader) -> int:
    return sum(1 for _ in batches)


def test_a_loader_for_validation_needs_no_option_beside_one_that_was_given_much(
    small_machine: Callable[..., shortgop.ClipLoader],
) -> None:
    before, held = mapped_bytes(), bytes_held()
    training, validation = small_machine(prefetch_bytes=5 << 20), small_machine()
    assert count(training) == 14
    of_training = bytes_held() - held
    assert mapped_bytes() - before == of_training > 2 << 20
    assert count(validation) == 14
    # Three batches. It had four if the other one held nothing.
    assert 1_400_000 < bytes_held() - held - of_training < 1_600_000
    for each in (training, validation):
        each.close()
    assert bytes_held() == held


def test_loaders_that_were_not_closed_refuse_no_other(small_machine: Callable[..., shortgop.ClipLoader]) -> None:
    """Such as one for each of many trials, in objects that Python has not collected yet."""
    loaders = [small_machine() for _ in range(14)]
    assert [count(each) for each in loaders] == [14] * 14
    for each in loaders:
        each.close()


def test_ranks_of_a_machine_share_its_memory(
    small_machine: Callable[..., shortgop.ClipLoader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert count(small_machine()) == 14
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(UsageError, match="half of the memory that .* have, divided by the 3 ranks of the machine"):
        count(small_machine())


def test_small_columns_hold_no_memory_of_frames(videos: Path) -> None:
    dataset = shortgop.ClipDataset(videos, shortgop.AllClips(2), size=(128, 128), metadata=["label"])
    loader = shortgop.ClipLoader(
        dataset, shortgop.ElasticSampler(dataset, 2), workers=0, prefetch_bytes=4 * 2 * (2 * 3 * 128 * 128 + 1000)
    )
    labels = [batch["label"] for batch in loader]
    assert len(labels) == 35
    assert loader.stats().copied_batches == 0


def mapped_bytes() -> int:
    """How much memory without a name this process maps."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:shortgop " in line]
    spans = [[int(end, 16) for end in line[0].split("-")] for line in lines]
    return sum(stop - start for start, stop in spans)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at Linux's list of memory")
def test_memory_does_not_grow_with_the_passes_of_which_batches_are_kept(videos: Path) -> None:
    dataset = shortgop.ClipDataset(videos, shortgop.AllClips(2), size=(128, 128))
    size = 5 * 2 * (2 * 3 * 128 * 128 + 5000)
    loader = shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 2), workers=0, prefetch_bytes=size)
    before = mapped_bytes()
    with pytest.warns(DatasetWarning, match="keeps so many batches"):
        kept = [batch for _ in range(4) for batch in islice(loader, 7)]
    assert mapped_bytes() - before <= size
    assert len({batch["frames"].data_ptr() for batch in kept}) == 28


class Passes:
    """A fence that is passed when it is told, or waited for."""

    def __init__(self) -> None:
        self.is_passed, self.waits = False, 0

    def query(self) -> bool:
        return self.is_passed

    def synchronize(self) -> None:
        self.is_passed, self.waits = True, self.waits + 1


def test_a_slot_is_free_only_when_the_copies_from_it_have_ended() -> None:
    """As a GPU's: dropping a batch is not enough while it is still copied."""
    fences: list[Passes] = []

    def fence() -> Passes:
        fences.append(Passes())
        return fences[-1]

    arena = Arena(Areas.of([rows_for({"frames": torch.zeros(3, 200, 200)}, 1)], 3))
    arena.fence = fence
    batches = [arena.lease(arena.take(), 1) for _ in range(2)]
    assert arena.num_leased == 2
    batches.clear()
    assert arena.num_leased == 0
    assert len(fences) == 2
    assert arena.has_free(1)
    fences[0].is_passed = True
    assert arena.has_free(2)
    assert [each.waits for each in fences] == [0, 0]
    # Only who wants more than there is waits.
    assert arena.has_free(3)
    assert [each.waits for each in fences] == [0, 1]
    assert not arena.has_free(4)
    arena.close()
