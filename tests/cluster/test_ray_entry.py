"""Machines of a cluster that lack shortgop, or have another version of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

import shortgop
from own_units import make_own_units
from ray_heads import cluster_of
from shortgop.errors import ToolError
from shortgop.jobs.cluster.ray_entry import call_of, called_here
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.progress.tally import Progress
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from sweep import sample

pytestmark = pytest.mark.long

REMEDY = "install the same version of shortgop[prep] on every node, in the Python that runs its Ray"
# What the package is on such a machine, and what is said of it.
OTHERS = {
    "missing": ("raise ImportError('there is none')", f"cannot run shortgop: there is none; {REMEDY}"),
    "broken": (
        "raise ValueError('numpy.dtype size changed')",
        f"cannot run shortgop: numpy.dtype size changed; {REMEDY}",
    ),
    "a folder of that name": (
        "",
        "shortgop/__init__.py for shortgop, which it is not; rename it, or run the same command in another folder",
    ),
    "older": ("__version__ = '0.0.1'", f"has shortgop 0.0.1, and the job has {shortgop.__version__}; {REMEDY}"),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_own_units(tmp_path_factory.mktemp("sources") / "videos", 6)


def machine_with(code: str, folder: Path) -> dict[str, Any]:
    """A machine on which shortgop is this code."""
    (folder / "other" / "shortgop").mkdir(parents=True)
    (folder / "other" / "shortgop" / "__init__.py").write_text(code)
    return {"num_cpus": 1, "env_vars": {"PYTHONPATH": str(folder / "other")}}


@pytest.mark.parametrize(("code", "why"), OTHERS.values(), ids=OTHERS)
def test_a_worker_says_what_is_wrong_with_its_shortgop(
    code: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Ray: what is called there is called here, where shortgop is this code."""
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "n1"))
    call = call_of(pow, 2, 3)
    assert called_here(*call)[1:] == (8, None)
    monkeypatch.syspath_prepend(machine_with(code, tmp_path)["env_vars"]["PYTHONPATH"])
    monkeypatch.delitem(sys.modules, "shortgop")
    machine, value, unable = called_here(*call)
    assert (machine, value) == ("n1", None)
    assert unable is not None
    assert unable.startswith("the cluster's node ")
    assert unable.endswith(why)


@pytest.mark.parametrize(
    ("code", "why"), sample([OTHERS["missing"]], more=[each for kind, each in OTHERS.items() if kind != "missing"])
)
def test_a_job_whose_machines_lack_its_shortgop_ends_and_says_so(
    code: str, why: str, sources: Path, tmp_path: Path
) -> None:
    with (
        cluster_of({"num_cpus": 0}, machine_with(code, tmp_path)) as (cluster, _),
        pytest.raises(ToolError) as caught,
    ):
        prepare([str(sources)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where(address=cluster.address))
    assert "the cluster's node " in str(caught.value)
    assert str(caught.value).endswith(why)


@pytest.mark.parametrize(("code", "why"), sample([OTHERS["older"]], more=[*OTHERS.values()][:-1]))
def test_a_machine_without_it_that_joins_later_is_left_out(code: str, why: str, sources: Path, tmp_path: Path) -> None:
    """As a new spot machine whose image is an old one."""
    notes: set[str] = set()
    with cluster_of({"num_cpus": 0}, {"num_cpus": 1}) as (cluster, _):
        without: dict[str, Any] = machine_with(code, tmp_path)

        def on_update(progress: Progress) -> None:
            notes.add(progress.note)
            if progress.sources_done and without:
                cluster.add_node(include_dashboard=False, no_monitor=True, include_log_monitor=False, **without)
                without.clear()

        report: Report = prepare(
            [str(sources)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where(address=cluster.address),
            on_update=on_update,
        )  # fmt: skip
    assert (report.videos_added, report.failures) == (6, ())
    assert not without
    assert any(
        "; 1 machine is left out for some minutes: the cluster's node " in note and why in note for note in notes
    )
