"""What `pip install .` and `pip wheel .` make of a checkout, and what they leave in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "py.typed")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of what a wheel is built of."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    for package in packages:
        folder = Path(*package.split(".")[1:])
        (copy / folder).mkdir(exist_ok=True)
        for module in (ROOT / folder).glob("*.py"):
            shutil.copy(module, copy / folder)
    for file in _FILES:
        shutil.copy(ROOT / file, copy)
    return copy


def modules_of_wheel(checkout: Path, folder: Path) -> set[str]:
    """Build the wheel of a checkout as pip does, without a network. Returns the files of shortgop in it."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(checkout)], check=True, cwd=folder.parent)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("shortgop/")}


def test_a_wheel_has_no_module_of_an_earlier_build_that_is_gone_since(checkout: Path, tmp_path: Path) -> None:
    """Setuptools would leave what it copied in the checkout, and take it into the next wheel."""
    before = {path.relative_to(checkout) for path in checkout.rglob("*")}
    (checkout / "jobs" / "renamed_since.py").write_text("")
    first = modules_of_wheel(checkout, tmp_path / "first")
    (checkout / "jobs" / "renamed_since.py").unlink()
    second = modules_of_wheel(checkout, tmp_path / "second")
    assert first - second == {"shortgop/jobs/renamed_since.py"}
    modules = {path for path in before if path.suffix in (".py", ".typed") and path.name != "setup.py"}
    assert second == {f"shortgop/{path}" for path in modules}
    assert {path.relative_to(checkout) for path in checkout.rglob("*")} == before
