"""What pages and docstrings name exists: files, public names, the modules of a room. Commands: test_documents."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import shortgop
from documents import PAGES, ROOT

FOLDERS = ("benchmarks", "examples", "gpu_check", "scripts", "tests")
ROOMS = ("cli", "comparison", "jobs", "manifests", "prep", "ray_data", "readers", "reporting", "storage", "training")
FILES = [*ROOT.glob("*.py"), *(path for folder in (*ROOMS, *FOLDERS) for path in (ROOT / folder).rglob("*.py"))]
INITS = sorted(path for path in FILES if path.name == "__init__.py" and path.parent != ROOT)

# A row of a docstring: modules, and after two spaces or more what they are.
ROW = re.compile(r"^ *(\w+(?:, \w+)*)  +\S", re.MULTILINE)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_python_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`([\w/]+\.py)`", page.read_text())
    exist = [f"/{path.relative_to(ROOT).as_posix()}" for path in FILES]
    assert [each for each in named if not any(path.endswith(f"/{each}") for path in exist)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if not link.startswith("http")]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_public_names_that_a_page_uses_exist(page: Path) -> None:
    used = set(re.findall(r"\bshortgop\.([A-Za-z]\w*)", page.read_text()))
    assert used - {"__version__", *shortgop.__all__} == set()


@pytest.mark.parametrize("init", INITS, ids=name)
def test_the_docstring_of_a_room_names_all_of_its_modules_and_no_others(init: Path) -> None:
    modules = {path.stem for path in init.parent.glob("*.py")} | {
        path.parent.name for path in init.parent.glob("*/*.py")
    }
    docstring = ast.get_docstring(ast.parse(init.read_text())) or ""
    assert modules - {"__init__"} - set(re.findall(r"\w+", docstring)) == set()
    rows = {module for row in ROW.findall(docstring) for module in row.split(", ")}
    assert rows - modules == set()
