"""Who may know whom. The rules that keep the packages apart, read from the source: lazy imports count too."""

import ast
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import shortgop

ROOT = Path(__file__).parents[2]
PACKAGES = ("storage", "manifests", "prep", "readers", "training", "ray_data", "jobs", "comparison", "reporting", "cli")
FOLDERS_BESIDE = ("benchmarks", "examples", "gpu_check", "scripts", "tests")
MAX_LINES = 400

# What each package may not know, besides the command line.
FORBIDDEN = {
    "storage": {
        *("av", "imageio_ffmpeg", "numpy", "ray", "torch", "torchcodec", "zarr"),
        *("shortgop.manifests", "shortgop.prep", "shortgop.readers", "shortgop.training", "shortgop.ray_data"),
        *("shortgop.jobs", "shortgop.comparison"),
    },
    "manifests": {
        *("av", "imageio_ffmpeg", "ray", "torch", "torchcodec"),
        *("shortgop.prep", "shortgop.readers", "shortgop.training", "shortgop.ray_data", "shortgop.jobs"),
        "shortgop.comparison",
    },
    "prep": {
        *("ray", "shortgop.readers", "shortgop.training", "shortgop.ray_data", "shortgop.jobs"),
        "shortgop.comparison",
    },
    "readers": {
        *("imageio_ffmpeg", "ray", "shortgop.prep", "shortgop.training", "shortgop.ray_data", "shortgop.jobs"),
        "shortgop.comparison",
    },
    "training": {
        *("av", "imageio_ffmpeg", "ray", "shortgop.prep", "shortgop.ray_data", "shortgop.jobs"),
        "shortgop.comparison",
    },
    "ray_data": {"av", "imageio_ffmpeg", "shortgop.prep", "shortgop.jobs", "shortgop.comparison"},
    "jobs": {"shortgop.training", "shortgop.ray_data", "shortgop.comparison"},
    "comparison": {
        *("imageio_ffmpeg", "ray", "shortgop.prep", "shortgop.jobs", "shortgop.training", "shortgop.ray_data"),
    },
    "reporting": {"imageio_ffmpeg", "ray", "shortgop.training", "shortgop.ray_data", "shortgop.comparison"},
    "cli": {"av", "imageio_ffmpeg", "numpy", "ray", "torch", "torchcodec", "zarr"},
}
# The page about a dataset reads what all other rooms wrote, and only the command line asks for it.
for room in set(FORBIDDEN) - {"reporting", "cli"}:
    FORBIDDEN[room] = FORBIDDEN[room] | {"shortgop.reporting"}
# What every room uses: these know none of the rooms.
BELOW_ALL = (
    *(
        "arguments.py",
        "control_groups.py",
        "errors.py",
        "lazy.py",
        "loans.py",
        "machine_cpus.py",
        "machine_memory.py",
        "stays_as_made.py",
        "unnamed_files.py",
        "version.py",
        "warned.py",
        "whole_files.py",
        "wording.py",
    ),
)
# From the lowest to the highest.
ROOMS_INSIDE = {
    "manifests": ("shared_memory", "zarr_files", "merging", "layering", "dataset_files", "operations"),
    "prep/probing": ("headers", "containers"),
    "prep": ("running", "probing", "kept_frames", "timing", "pictures", "tools"),
    "jobs": ("finding", "units_of_work", "sources", "working", "progress", "cluster", "planning"),
    "training": ("which_clips", "pixels", "datasets", "sampling", "robots", "loader"),
}
# The command line stands on top. Modules name each other relatively: `import manifests` works in no install.
FORBIDDEN_EVERYWHERE = {"shortgop.cli", "shortgop.__main__", "cli", *PACKAGES}
MAY_START_PROCESSES = {"prep/running/processes.py"}

# Modules outside `storage` that ask whether a dataset is a folder of this host. All others know places and keys alone.
MAY_ASK_FOR_FOLDERS = {
    "jobs/cluster/shared_files.py",  # a folder has to be the same one on all machines
    "manifests/dataset_files/in_order.py",  # waiting for one answer after the other costs nothing on a disk
    "manifests/dataset_files/missing_root.py",  # what is no dataset may be a file
    "manifests/operations/lost.py",  # a list of a store costs a request for a thousand shards
    "manifests/dataset_files/publish.py",  # an empty folder of shards is none in a store
    "readers/gops.py",  # reading ahead
    "readers/store_options.py",  # what a request costs
}

MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
BESIDE = [path for folder in FOLDERS_BESIDE for path in sorted((ROOT / folder).rglob("*.py"))]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(source: str, package: str) -> Iterator[str]:
    """The absolute names that a module of `package` imports anywhere in its source."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                parents = package.split(".")
                origin = ".".join([*parents[: len(parents) + 1 - level], *([module] if module else [])])
                base = origin if level else str(module)
                # What is imported may be a module as well as a name in one.
                yield from (f"{base}.{alias.name}" for alias in aliases)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[argument, *_],
            ):
                assert isinstance(argument, ast.Constant), "an import that cannot be checked"
                yield str(argument.value)


def breaches(path: Path, forbidden: set[str]) -> list[str]:
    package = ".".join(("shortgop", *path.relative_to(ROOT).parent.parts))
    found = imports(path.read_text(), package)
    return [each for each in found if any(f"{each}.".startswith(f"{barred}.") for barred in forbidden)]


@pytest.mark.parametrize("package", PACKAGES)
def test_layers(package: str) -> None:
    forbidden = FORBIDDEN[package] | (FORBIDDEN_EVERYWHERE - {f"shortgop.{package}"}) | {"subprocess"}
    modules = [path for path in MODULES if path.is_relative_to(ROOT / package)]
    assert ROOT / package / "__init__.py" in modules
    assert {name(path): found for path in modules if (found := breaches(path, forbidden))} == {}


def test_one_module_starts_processes() -> None:
    calls = ("os.posix_spawn", "os.fork", "os.exec", "os.system")
    assert {name(path) for path in MODULES if any(call in path.read_text() for call in calls)} == MAY_START_PROCESSES


def test_of_the_rooms_inside_jobs_one_knows_ray() -> None:
    inside = sorted((ROOT / "jobs" / "cluster").glob("*.py"))
    outside = set((ROOT / "jobs").rglob("*.py")) - set(inside)
    assert [name(path) for path in sorted(outside) if breaches(path, {"ray"})] == []
    assert [path for path in inside if breaches(path, {"ray"})]


@pytest.mark.parametrize("package", ROOMS_INSIDE)
def test_rooms_use_only_those_below_them(package: str) -> None:
    rooms, dotted_package = ROOMS_INSIDE[package], f"shortgop.{package.replace('/', '.')}"
    for place, room in enumerate(rooms):
        above = {f"{dotted_package}.{each}" for each in rooms[place + 1 :]}
        modules = sorted((ROOT / package / room).glob("*.py"))
        assert len(modules) > 2
        assert [name(path) for path in modules if breaches(path, above)] == []
    assert {path.parent.name for path in (ROOT / package).glob("*/*.py")} == set(rooms)


@pytest.mark.parametrize("package", sorted(set(ROOMS_INSIDE) - {"manifests"}))
def test_rooms_use_nothing_of_what_lies_beside_them_but_what_the_user_chooses(package: str) -> None:
    folder, dotted_package = ROOT / package, f"shortgop.{package.replace('/', '.')}"
    beside = {f"{dotted_package}.{path.stem}" for path in folder.glob("*.py") if path.name != "__init__.py"}
    beside -= {"shortgop.prep.options", "shortgop.prep.profile"}
    assert [name(path) for path in folder.glob("*/**/*.py") if breaches(path, beside)] == []


def test_the_data_model_uses_no_room_of_manifests() -> None:
    rooms = {f"shortgop.manifests.{each}" for each in ROOMS_INSIDE["manifests"]}
    assert [name(path) for path in (ROOT / "manifests").glob("*.py") if breaches(path, rooms)] == []


def test_few_modules_ask_whether_a_dataset_is_a_folder() -> None:
    def asks(path: Path) -> bool:
        tree = ast.walk(ast.parse(path.read_text()))
        found = [node.value for node in tree if isinstance(node, ast.Attribute) and node.attr == "folder"]
        return any(isinstance(each, ast.Name) and each.id in ("dataset", "place", "out", "storage") for each in found)

    outside = [path for path in MODULES if path.relative_to(ROOT).parts[0] != "storage"]
    assert {name(path) for path in outside if asks(path)} == MAY_ASK_FOR_FOLDERS


@pytest.mark.parametrize("module", BELOW_ALL)
def test_what_every_room_uses_knows_no_room(module: str) -> None:
    rooms = {f"shortgop.{package}" for package in PACKAGES} | FORBIDDEN["manifests"] | {"subprocess"}
    assert breaches(ROOT / module, rooms | FORBIDDEN_EVERYWHERE) == []


def test_no_room_imports_the_names_that_the_package_has_from_the_rooms() -> None:
    public = {f"shortgop.{each}" for each in shortgop.__all__}
    rooms = [path for path in MODULES if path.relative_to(ROOT).parts[0] != "cli"]
    assert [name(path) for path in rooms if breaches(path, public)] == []


def test_no_module_leads_back_to_itself() -> None:
    modules = {dotted(path): path for path in [*MODULES, *(ROOT / module for module in BELOW_ALL)]}
    graph = {}
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names = {each for found in imports(path.read_text(), package) for each in (found, found.rpartition(".")[0])}
        graph[module] = (names & set(modules)) - {module}
    assert graph["shortgop.readers.video"], "nothing was found"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("shortgop", *parts)).removesuffix(".__init__")


def test_no_two_modules_have_the_same_name() -> None:
    """A name alone says which module is meant, also among scripts and tests."""
    paths = [*MODULES, *ROOT.glob("*.py"), *BESIDE]
    names = [path.name for path in paths if path.name not in ("__init__.py", "__main__.py")]
    assert sorted(each for each in set(names) if names.count(each) > 1) == []


def test_modules_tests_and_scripts_stay_small() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in [*MODULES, *BESIDE]}
    assert {each: lines for each, lines in lengths.items() if lines > MAX_LINES} == {}
    assert [name(path) for path in MODULES if lengths[name(path)] == MAX_LINES] == []


def test_every_package_is_installed() -> None:
    """Setuptools has an explicit list, and an editable install does not notice what it lacks."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for path in MODULES}
    assert set(listed) == {"shortgop", *(".".join(("shortgop", *folder.parts)) for folder in folders)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import av.codec", ["av.codec"]),
        ("from torch import Tensor", ["torch.Tensor"]),
        ("def f():\n    from ray import data", ["ray.data"]),
        ("from . import plan", ["shortgop.readers.decoders.plan"]),
        ("from ..plan import Plan", ["shortgop.readers.plan.Plan"]),
        ("from ... import prep", ["shortgop.prep"]),
        ("from ...prep.probing.probe import probe", ["shortgop.prep.probing.probe.probe"]),
        ("import importlib\nimportlib.import_module('ray')", ["importlib", "ray"]),
    ],
)
def test_every_kind_of_import_is_seen(source: str, expected: list[str]) -> None:
    assert list(imports(source, "shortgop.readers.decoders")) == expected
