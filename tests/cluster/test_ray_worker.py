"""What a worker of Ray says of a step that its machine could not do."""

from __future__ import annotations

from pathlib import Path

from shortgop.jobs.cluster import ray_worker
from shortgop.jobs.cluster.ray_worker import Unfit
from shortgop.jobs.cluster.shared_files import leave_mark
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.units_of_work.steps import Whole
from shortgop.jobs.units_of_work.unit_results import UnitProgress, UnitResult
from shortgop.jobs.units_of_work.units import Item, plan_units
from shortgop.jobs.working.work import ANY_TERMS
from shortgop.manifests.dataset_files.root_file import create
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import SyntheticVideo


def test_what_was_written_into_the_folder_that_a_lost_mount_leaves_is_not_done(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """Nothing fails there: the worker makes what folders it needs. The videos were lost without a word."""
    folder, elsewhere = tmp_path / "dataset", tmp_path / "elsewhere"
    dataset, profile = DiskStorage(folder), Profile()
    create(dataset, profile.to_json())
    mark = leave_mark(dataset)
    (source,) = find_sources([str(constant_video.path)])
    (unit,) = plan_units([Item(source, *identity_of(source.path))], profile_key="", done={}, shard_bytes=10**9)

    def lose_the_mount(_: UnitProgress) -> None:
        if not elsewhere.exists():
            folder.rename(elsewhere)
            folder.mkdir()

    outcome = ray_worker._outcome(dataset, Whole(unit), Options(profile), lose_the_mount, mark, ANY_TERMS)
    assert list(folder.glob("parts/*")), "nothing was written there, which the worker would have noticed"
    assert isinstance(outcome, Unfit)
    assert "is not the job's folder" in str(outcome.error)

    for each in sorted(folder.rglob("*"), reverse=True):
        each.rmdir() if each.is_dir() else each.unlink()
    folder.rmdir()
    elsewhere.rename(folder)
    outcome = ray_worker._outcome(dataset, Whole(unit), Options(profile), lambda _: None, mark, ANY_TERMS)
    assert isinstance(outcome, UnitResult)
    assert (outcome.videos, outcome.was_there) == (1, False)
