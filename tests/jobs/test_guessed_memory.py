"""Units of which nobody knows how large the pictures are: who finds out that they take more memory than was asked for
hands them back, and they are begun where there is enough."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from datasets import current_manifest
from long_sources import FRAMES, PROFILE, SECTION_SECONDS, make_sources
from ray_heads import cluster_of
from shortgop.jobs.cluster.ray_runner import limit_of
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.finding.source_parts import identity_of_part
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.sources.look import look_at
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.steps import Look, MoreMemory, Sections, Step, Whole
from shortgop.jobs.units_of_work.task_memory import UNKNOWN_BYTES, task_bytes
from shortgop.jobs.units_of_work.unit_results import UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.step_work import run_step
from shortgop.jobs.working.work import Terms
from shortgop.manifests.dataset_files.root_file import create
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

_SIZE = (2560, 1440)
_PROFILE = Profile()
_FRAMES = 6
_NEEDED = task_bytes(2560 * 1440, 2560 * 1440, "h264", _FRAMES, salvage=False)
_MB = 10**6


def make(path: Path, size: tuple[int, int] = _SIZE) -> Path:
    # Enough bytes for a unit of its own.
    make_video(
        path, pts=constant_rate_pts(Fraction(30), _FRAMES), timebase=Fraction(1, 30), size=size,
        options={"qp": "1", "preset": "ultrafast"},
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a tar of two videos. Jobs do not read the headers of what is in a tar."""
    folder = tmp_path_factory.mktemp("tar")
    with tarfile.open(folder / "videos.tar", "w") as tar:
        for name in ("a.mp4", "b.mp4"):
            tar.add(make(folder / name), name)
    return folder / "videos.tar"


@pytest.fixture
def dataset(tmp_path: Path) -> DiskStorage:
    create(DiskStorage(tmp_path / "dataset"), _PROFILE.to_json())
    return DiskStorage(tmp_path / "dataset")


def unit_of(path: Path, *, is_long: bool = False) -> Unit:
    sources = find_sources([str(path)])
    return Unit(
        "0" * 16,
        tuple(Item(source, *identity_of_part(source.path, source.part, identity_of)) for source in sources),
        is_long=is_long,
    )


def test_what_is_in_a_tar_has_unknown_pictures(tar: Path) -> None:
    assert [each.expected.memory_bytes for each in look_at(find_sources([str(tar)]), Options(_PROFILE))] == [None] * 2
    beside = look_at(find_sources([str(tar.parent / "a.mp4")]), Options(_PROFILE))
    assert [each.expected.memory_bytes for each in beside] == [_NEEDED]


@pytest.mark.parametrize("most_bytes", [None, _NEEDED, _NEEDED - 1])
def test_a_unit_is_encoded_with_the_memory_that_it_takes_and_handed_back_with_less(
    tar: Path, dataset: DiskStorage, most_bytes: int | None
) -> None:
    outcome = run_step(dataset, Whole(unit_of(tar)), Options(_PROFILE), lambda _: None, Terms(most_bytes))
    if most_bytes == _NEEDED - 1:
        assert outcome == MoreMemory(_NEEDED)
        assert not [file for folder in ("parts", "shards") for file in dataset.files(folder)]
    else:
        assert isinstance(outcome, UnitResult)
        assert (outcome.videos, outcome.failures) == (2, ())


def test_a_long_source_is_handed_back_before_it_is_cut(tmp_path: Path, dataset: DiskStorage) -> None:
    step = Look(unit_of(make_sources(tmp_path) / "long.mp4", is_long=True))
    options = Options(PROFILE, section_seconds=SECTION_SECONDS)
    needed = task_bytes(320 * 256, 320 * 256, "h264", FRAMES, salvage=False)
    assert run_step(dataset, step, options, lambda _: None, Terms(needed - 1)) == MoreMemory(needed)
    assert isinstance(run_step(dataset, step, options, lambda _: None, Terms(needed)), Sections)


def test_sections_ask_for_what_their_look_has_found_and_not_for_what_was_guessed(
    tmp_path: Path, dataset: DiskStorage
) -> None:
    long = make_sources(tmp_path) / "long.mp4"
    needed = task_bytes(320 * 256, 320 * 256, "h264", FRAMES, salvage=False)
    assert needed < UNKNOWN_BYTES // 3
    options = Options(PROFILE, section_seconds=SECTION_SECONDS)
    for unit in (unit_of(long, is_long=True), replace(unit_of(long, is_long=True), guesses_memory=False)):
        order = Order([unit])
        step = order.next()
        outcome = run_step(dataset, step, options, lambda _: None)
        assert order.done(step, outcome) is None
        sections = []
        while order:
            sections.append(order.next())
        assert len(sections) > 1
        memory = {(each.unit.expected_bytes, each.unit.guesses_memory) for each in sections}
        assert memory == {(needed if unit.guesses_memory else unit.expected_bytes, False)}


@pytest.mark.parametrize("kind", [Whole, Look])
def test_what_was_handed_back_is_the_next_step_and_asks_for_what_it_takes(kind: type[Whole | Look]) -> None:
    def unit(name: str) -> Unit:
        return Unit(name, unit_of(Path(__file__)).items, is_long=kind is Look)

    order = Order([unit("a"), unit("b")])
    step = order.next()
    assert step.unit.expected_bytes == UNKNOWN_BYTES
    assert order.done(step, MoreMemory(_NEEDED)) is None
    steps: list[Step] = [order.next(), order.next()]
    assert [type(each) for each in steps] == [kind, kind]
    assert [(each.unit.id, each.unit.expected_bytes) for each in steps] == [("a", _NEEDED), ("b", UNKNOWN_BYTES)]


def test_only_a_guess_is_checked_and_not_where_a_machine_has_no_more() -> None:
    """Otherwise what no machine can hold would be handed back for ever."""
    guessed = Unit("u", ())
    assert limit_of(guessed, UNKNOWN_BYTES + 1) == UNKNOWN_BYTES + 1
    assert limit_of(guessed, UNKNOWN_BYTES - 1) is None
    assert limit_of(Unit("u", (), guesses_memory=False), UNKNOWN_BYTES + 1) is None


def test_no_more_run_at_a_time_than_fit_although_their_sizes_were_not_known(
    tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has memory for two units as they are guessed, and for one as they are. What stands for ffmpeg notes
    when it begins to encode and when it has ended."""
    notes, program, ffmpeg = tmp_path / "notes", tmp_path / "ffmpeg", find_ffmpeg().path
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *-copyts*) echo + >> {notes}; "{ffmpeg}" "$@"; code=$?; echo - >> {notes}; exit $code;; esac\n'
        f'exec "{ffmpeg}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(program))
    assert 2 * UNKNOWN_BYTES < 1700 * _MB < 2 * _NEEDED
    with cluster_of({"num_cpus": 2, "memory": 1700 * _MB}) as (cluster, _):
        report = prepare([str(tar)], DiskStorage(tmp_path / "dataset"), _PROFILE, where=Where(address=cluster.address))
    assert (report.videos_added, report.failures) == (2, ())
    assert len(current_manifest(tmp_path / "dataset").shards) == 2, "each is a unit of its own"
    assert notes.read_text().split() == ["+", "-"] * 2


# `test_task_memory.py` has one whose memory is known.
@only_in_a_sweep
def test_a_unit_that_no_machine_can_hold_runs_alone_on_the_largest(tar: Path, tmp_path: Path) -> None:
    with cluster_of({"num_cpus": 2, "memory": 900 * _MB}) as (cluster, _):
        report = prepare([str(tar)], DiskStorage(tmp_path / "dataset"), _PROFILE, where=Where(address=cluster.address))
    assert (report.videos_added, report.failures) == (2, ())
