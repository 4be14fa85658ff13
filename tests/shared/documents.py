"""What the documents show to copy: blocks of code, indented lines, and commands within sentences; and whether a command
names what exists, without running it."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import typer
from ray.scripts.scripts import cli as ray_cli

from shortgop.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS: dict[str, Any] = {"ray": ray_cli, "shortgop": typer.main.get_command(app)}

_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$|(?<=\n\n)((?: {4}[^\n]+\n)+)", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.DOTALL)
_PYTHONS = {"python", "python3", ".venv/bin/python"}
# A script that hands its arguments on to another one.
_TAKES_ARGUMENTS = {"gpu_check/start.py": "gpu_check/run_checks.py"}


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between fences, or is indented by four spaces or more after an empty line."""

    language: str  # with what follows it, such as `bash run`; empty where the block is indented
    text: str


def blocks(page: Path) -> list[Block]:
    return [
        Block(found[1] or "", textwrap.dedent(found[3] or found[2]))
        for found in _BLOCK.finditer(page.read_text() + "\n")
    ]


def spans(page: Path) -> list[str]:
    """What stands between backticks within the sentences and tables of a page."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", _BLOCK.sub("", page.read_text()))]


def section(page: Path, title: str) -> str:
    """What stands below a heading, up to the next one of the same rank."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def rows(text: str, head: str) -> dict[str, str]:
    """The rows of a table of two columns whose first one has this head, without the backticks of the first column."""
    (found,) = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return dict(re.findall(r"^\| `(\S+)` \| (.*) \|$", found, re.MULTILINE))


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def parsed(command: Any, words: Sequence[str]) -> None:
    """Let click, or typer's own, parse a command line without running it. It raises an error for an option or a command
    that is none."""
    if hasattr(command, "resolve_command"):
        context = command.make_context("", list(words), resilient_parsing=True)
        _, inner, rest = command.resolve_command(context, list(words))
        assert inner is not None, f"No such command: {words[0]}"
        parsed(inner, rest)
    else:
        command.make_context(command.name, list(words)).close()


def assert_exists(words: Sequence[str], *, complete: bool = True) -> None:
    """Raise an error where a command line names a program, a command, an option, a file, a target or a variable that
    does not exist. A line that is not complete may lack what the command needs."""
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        _assert_variable(found[1], found[2])
        words = words[1:]
    if not words:
        return
    program, *rest = words
    if program in PROGRAMS:
        if complete:
            parsed(PROGRAMS[program], rest)
        else:
            _assert_options(PROGRAMS[program], rest)
    elif program == "make":
        for word in rest:
            assignment = _ASSIGNMENT.fullmatch(word)
            if assignment:
                assert f"$({assignment[1]})" in _makefile(), f"No such variable: {assignment[1]}"
                _assert_variable(assignment[1], assignment[2])
            else:
                assert re.search(rf"^{re.escape(word)}:", _makefile(), re.MULTILINE), f"No such target: {word}"
    elif program in _PYTHONS:
        script_parser(rest[0]).parse_args(rest[1:])
    elif program == "pip":
        _assert_extras(rest)
    else:
        raise AssertionError(f"neither run nor parsed: {shlex.join(words)}")


def _assert_options(command: Any, words: Sequence[str]) -> None:
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"No such command: {rest[0]}"
        command = command.commands[rest.pop(0)]
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    unknown = {word.partition("=")[0] for word in rest if word.startswith("--") and word != "--"} - options
    assert not unknown, f"No such option: {unknown}"


def _assert_variable(name: str, value: str) -> None:
    """A variable of the Makefile, whose value may be the options of a script, or one of the environment that the
    sources read."""
    if f"$({name})" not in _makefile():
        assert re.search(rf"\b{name}\b", _sources()), f"No such variable: {name}"
    for script in re.findall(rf"(\S+\.py) [^\n]*\$\({name}\)", _makefile()):
        script_parser(_TAKES_ARGUMENTS.get(script, script)).parse_args(shlex.split(value))


def _assert_extras(words: Sequence[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if found := re.search(r"\[(.+)\]", word):
            unknown = set(found[1].split(",")) - set(extras)
            assert not unknown, f"No such extra: {unknown}"
        assert not word.endswith(".txt") or (ROOT / word).is_file(), f"No such file: {word}"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message}")


@cache
def script_parser(script: str) -> argparse.ArgumentParser:
    """The parser that a script makes, read from its text: running it with `--help` takes seconds."""
    parser = _Parser(prog=script, allow_abbrev=False)
    for call in ast.walk(ast.parse((ROOT / script).read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            keywords: dict[str, Any] = {}
            for keyword in call.keywords:
                if keyword.arg in {"action", "nargs"}:
                    keywords[keyword.arg] = ast.literal_eval(keyword.value)
                elif keyword.arg == "type" and isinstance(keyword.value, ast.Name):
                    keywords["type"] = {"int": int, "float": float}.get(keyword.value.id, str)
            parser.add_argument(*(ast.literal_eval(name) for name in call.args), **keywords)
    return parser


@cache
def _makefile() -> str:
    return (ROOT / "Makefile").read_text()


@cache
def _sources() -> str:
    """The text of all that may read a variable of the environment."""
    folders = ("cli", "prep", "readers", "storage", "manifests", "jobs", "gpu_check", "scripts", "benchmarks", "tests")
    return "\n".join(
        file.read_text()
        for folder in folders
        for file in (ROOT / folder).rglob("*.py")
        if file.name != "test_documents.py"
    )
