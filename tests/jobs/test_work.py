"""One unit of work."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from shortgop.errors import OutputError
from shortgop.jobs.finding import fetched_sources
from shortgop.jobs.finding.fetched_sources import file_of
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.finding.source_parts import identity_of_part
from shortgop.jobs.units_of_work.steps import Whole
from shortgop.jobs.units_of_work.unit_results import UnitProgress
from shortgop.jobs.units_of_work.units import Item, plan_units
from shortgop.jobs.working.step_work import run_step
from shortgop.jobs.working.work import run_unit
from shortgop.manifests.dataset_files.parts import pack, read_part
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.merging.merge import merge
from shortgop.prep.options import Options, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.timing.stretch import Stretch
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at
from shortgop.storage.network import NetworkOptions
from source_arguments import find_sources
from synthetic import SyntheticVideo


def test_a_unit_that_was_committed_is_not_written_again(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """A worker may die between committing and saying so; its unit is then run once more."""
    profile, dataset = Profile(), tmp_path / "dataset"
    create(DiskStorage(dataset), profile.to_json())
    (source,) = find_sources([str(constant_video.path)])
    (unit,) = plan_units([Item(source, *identity_of(source.path))], profile_key="", done={}, shard_bytes=10**9)
    seen: list[UnitProgress] = []

    first = run_unit(DiskStorage(dataset), unit, Options(profile), seen.append)
    shard = next((dataset / "shards").iterdir())
    written = shard.stat()

    assert seen[-1] == UnitProgress(unit.id, 100, 100)
    assert (first.videos, first.frames, first.bytes, first.failures) == (1, 100, written.st_size, ())
    assert run_unit(DiskStorage(dataset), unit, Options(profile), seen.append) == first
    assert shard.stat().st_ino == written.st_ino
    assert read_part(DiskStorage(dataset), unit.id).ids == ["constant.mp4"]


def test_stretches_of_a_file_that_could_not_be_read_before_are_looked_at_together(
    constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a mount does not answer, each look waits for as long as the user allows."""
    (source,) = find_sources([str(constant_video.path)])
    stretches = [Stretch(Fraction(number), Fraction(number + 1), "a line") for number in range(3)]
    looks: list[str] = []

    def looked(path: str) -> tuple[int, int]:
        looks.append(path)
        return identity_of(path)

    monkeypatch.setattr(fetched_sources, "identity_of", looked)
    with file_of(DiskStorage(tmp_path), source, SourcePolicy()) as file:
        found = file.identities(stretches)
    assert found == [identity_of_part(source.path, stretch, identity_of)[0] for stretch in stretches]
    assert looks == [source.path]


def test_the_part_of_one_video_holds_what_merging_it_would_give(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """It is not merged, because that takes time. Parts that say the same must be the same bytes."""
    profile, dataset = Profile(gop_frames=8, segment_seconds=Fraction(1, 2)), DiskStorage(tmp_path / "dataset")
    create(dataset, profile.to_json())
    (source,) = find_sources([str(constant_video.path)])
    (unit,) = plan_units([Item(source, *identity_of(source.path))], profile_key="", done={}, shard_bytes=10**9)
    result = run_unit(dataset, unit, Options(profile), lambda _: None)
    assert not result.failures

    rows = read_part(dataset, unit.id)
    assert len(rows.segments) == 7
    assert len(rows.patterns) == 2
    assert pack(rows, {}) == pack(merge([rows]), {})


def test_a_dataset_that_does_not_answer_ends_the_job_with_its_name(
    constant_video: SyntheticVideo, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One machine of a cluster may lack the network or the settings that the others have."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    (source,) = find_sources([str(constant_video.path)])
    (unit,) = plan_units([Item(source, *identity_of(source.path))], profile_key="", done={}, shard_bytes=10**9)
    dataset = storage_at(s3_url, network=NetworkOptions(retries=0))
    with pytest.raises(OutputError, match="no connection to http://") as caught:
        run_step(dataset, Whole(unit), Options(Profile()), lambda _: None)
    assert dataset.url in str(caught.value)
