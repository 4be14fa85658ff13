"""What the instructions of a Dockerfile mean, as far as `image_root.py` can do them: nothing here touches a file.

Docker's own parser reads the text (the package `dockerfile`). An instruction, flag or form that is not known here is an
error, never passed over.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# They say something about an image, and do nothing to its files. How its commands run depends on none of them.
_ONLY_SAID = {"EXPOSE", "LABEL", "STOPSIGNAL"}
_FLAGS: dict[str, set[str]] = {
    "COPY": {"from"},
    "HEALTHCHECK": {"interval", "timeout", "start-period", "start-interval", "retries"},
}
_KNOWN = {"FROM", "ARG", "ENV", "RUN", "COPY", "WORKDIR", "USER", "SHELL", "HEALTHCHECK", "CMD", *_ONLY_SAID}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class DockerfileError(Exception):
    """Something in a Dockerfile that is wrong, or that is not known here."""


@dataclass(frozen=True)
class Step:
    """One instruction. The words of a JSON form are those of a command; else a RUN has one word for its shell."""

    name: str
    words: tuple[str, ...]
    flags: Mapping[str, str] = field(default_factory=dict)
    is_json: bool = False
    line: int = 0
    text: str = ""

    def wrong(self, why: str) -> DockerfileError:
        return DockerfileError(f"line {self.line}: {self.name}: {why}")


@dataclass(frozen=True)
class Stage:
    name: str
    base: str
    steps: tuple[Step, ...]

    def stages_copied_from(self) -> set[str]:
        return {step.flags["from"] for step in self.steps if "from" in step.flags}


@dataclass(frozen=True)
class Health:
    command: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True)
class Config:
    """What a stage has set so far, and what one that begins from it takes over."""

    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    args: Mapping[str, str] = field(default_factory=dict)
    user: str = "0"
    workdir: str = "/"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    health: Health | None = None
    command: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """What `$NAME` means in a later instruction, and what a RUN has in its environment."""
        return {**self.args, **self.env}


def parsed(text: str) -> list[Step]:
    """The instructions of a Dockerfile. The parser is a program in Go, with threads: do not fork after this."""
    import dockerfile

    try:
        commands = dockerfile.parse_string(text)
    except ValueError as error:
        raise DockerfileError(str(error)) from error
    return [
        checked(
            Step(
                name=command.cmd,
                words=tuple(command.value),
                flags=flags(command.flags),
                is_json=command.json,
                line=command.start_line,
                text=" ".join(command.original.split()),
            ),
            with_heredoc=bool(command.heredocs),
        )
        for command in commands
    ]


def flags(words: Iterable[str]) -> dict[str, str]:
    """`--from=build` as a pair; a flag without a value has an empty one."""
    pairs = (word.removeprefix("--").partition("=") for word in words)
    return {name: value for name, _, value in pairs}


def checked(step: Step, *, with_heredoc: bool = False) -> Step:
    """The same step, if it is one that can be done here."""
    if step.name not in _KNOWN:
        raise step.wrong(f"this instruction is not known here; known are {', '.join(sorted(_KNOWN))}")
    if unknown := set(step.flags) - _FLAGS.get(step.name, set()):
        raise step.wrong(f"the flag --{min(unknown)} is not known here")
    if with_heredoc:
        raise step.wrong("here-documents are not known here")
    if step.name not in _ONLY_SAID and not any(step.words):
        raise step.wrong("something has to stand behind it")
    if step.name in {"WORKDIR", "USER"} and len(step.words) != 1:
        raise step.wrong("one word has to stand behind it")
    if step.name == "SHELL" and not step.is_json:
        raise step.wrong('it needs the JSON form, as in SHELL ["/bin/bash", "-c"]')
    return step


def stages(steps: Sequence[Step], build_args: Mapping[str, str]) -> tuple[dict[str, Stage], dict[str, str]]:
    """The stages by name, in order, and the arguments before the first. One without a name is called by its number."""
    if undeclared := set(build_args) - {argument(word)[0] for s in steps if s.name == "ARG" for word in s.words}:
        raise DockerfileError(f"no ARG declares {min(undeclared)}, which was given as a build argument")
    first = next((number for number, step in enumerate(steps) if step.name == "FROM"), None)
    if first is None:
        raise DockerfileError("there is no FROM")
    top = Config(env={})
    for step in steps[:first]:
        if step.name != "ARG":
            raise step.wrong("only ARG may stand before the first FROM")
        top = after(top, step, build_args, {})
    found: dict[str, Stage] = {}
    for number in [number for number, step in enumerate(steps) if step.name == "FROM"]:
        base, name = names_in(steps[number], str(len(found)), top.args)
        if name in found:
            raise steps[number].wrong(f"there are two stages {name}")
        body = next((n for n in range(number + 1, len(steps)) if steps[n].name == "FROM"), len(steps))
        stage = Stage(name, base, tuple(steps[number + 1 : body]))
        for step in stage.steps:
            if "from" in step.flags and step.flags["from"] not in found:
                raise step.wrong(
                    f"no stage before it is called {step.flags['from']}; other images cannot be copied from"
                )
        found[name] = stage
    return found, dict(top.args)


def names_in(step: Step, number: str, variables: Mapping[str, str]) -> tuple[str, str]:
    """The base and the name in `FROM base AS name`."""
    match [expanded(word, variables) for word in step.words]:
        case [base] if base:
            return base, number
        case [base, as_, name] if base and as_.upper() == "AS":
            return base, name.lower()
    raise step.wrong(f"FROM BASE AS NAME was expected, not {step.text!r}")


def needed(found: Mapping[str, Stage], targets: Sequence[str]) -> list[Stage]:
    """The stages that the targets are made of, in order, and no others: as Docker does it."""
    for target in targets:
        if target not in found:
            raise DockerfileError(f"there is no stage {target}; there are {', '.join(found)}")
    wanted: set[str] = set()
    waiting = list(targets)
    while waiting:
        name = waiting.pop()
        if name in found and name not in wanted:
            wanted.add(name)
            waiting += [found[name].base, *found[name].stages_copied_from()]
    return [stage for name, stage in found.items() if name in wanted]


def argument(word: str) -> tuple[str, str | None]:
    name, equals, value = word.partition("=")
    return name, value if equals else None


def after(config: Config, step: Step, build_args: Mapping[str, str], top_args: Mapping[str, str]) -> Config:
    """What is set once a step was done."""
    return dataclasses.replace(config, **changes(config, step, build_args, top_args))


def changes(config: Config, step: Step, build_args: Mapping[str, str], top_args: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the config that a step sets."""
    variables = config.variables()
    words = step.words
    match step.name:
        case "ENV":
            pairs = zip(words[::2], words[1::2], strict=True)
            env = {expanded(name, variables): expanded(value, variables) for name, value in pairs}
            change: dict[str, Any] = {"env": {**config.env, **env}}
        case "ARG":
            change = {"args": {**config.args, **given(words, variables, build_args, top_args)}}
        case "USER":
            change = {"user": expanded(words[0], variables)}
        case "WORKDIR":
            change = {"workdir": posixpath.normpath(posixpath.join(config.workdir, expanded(words[0], variables)))}
        case "SHELL":
            change = {"shell": words}
        case "CMD":
            change = {"command": command_line(config, words, is_json=step.is_json)}
        case "HEALTHCHECK":
            change = {"health": health(config, step)}
        case _:
            change = {}
    return change


def given(
    words: Sequence[str], variables: Mapping[str, str], build_args: Mapping[str, str], top_args: Mapping[str, str]
) -> dict[str, str]:
    """The values of an ARG: what the caller gave, or else its default, or else what it has above the first FROM."""
    values: dict[str, str] = {}
    for word in words:
        name, default = argument(word)
        value = expanded(default, {**variables, **values}) if default is not None else top_args.get(name)
        value = build_args.get(name, value)
        if value is not None:
            values[name] = value
    return values


def command_line(config: Config, words: Sequence[str], *, is_json: bool) -> tuple[str, ...]:
    return tuple(words) if is_json else (*config.shell, *words)


def health(config: Config, step: Step) -> Health | None:
    kind, *command = step.words
    if kind.upper() == "NONE":
        return None
    if kind.upper() != "CMD" or not command:
        raise step.wrong("CMD and a command, or NONE, has to stand behind it")
    timeout_s = seconds(step.flags.get("timeout", "30s"), step)
    return Health(command_line(config, command, is_json=step.is_json), timeout_s)


def seconds(text: str, step: Step) -> float:
    """A time as Go writes it: `1m30s`."""
    if not re.fullmatch(r"(\d+(?:\.\d+)?(?:h|ms|m|s))+", text):
        raise step.wrong(f"{text!r} is no time like 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", text))


_PIECE = re.compile(
    r"""(?P<escaped>\\.)
      | '(?P<single>[^']*)'
      | (?P<quote>")
      | \$(?P<plain>\w+)
      | \$\{(?P<name>\w+)(?:(?P<operator>:?[-+])(?P<word>[^{}$]*))?\}
      | (?P<wrong>\$\{|')
      | (?P<text>.)""",
    re.VERBOSE | re.DOTALL,
)


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """A word without its quotes, and with the values of variables: `$A`, `${A}`, `${A:-else}`, `${A:+then}`."""
    done: list[str] = []
    quoted = False
    position = 0
    while position < len(text):
        # Between double quotes an apostrophe is one like any other.
        if quoted and text[position] == "'":
            done.append("'")
            position += 1
            continue
        piece = _PIECE.match(text, position)
        if piece is None or piece["wrong"]:
            raise DockerfileError(
                f"{text!r}: {text[position:]!r} is no form of a variable or of quotes that is known here"
            )
        position = piece.end()
        quoted ^= piece["quote"] is not None
        done.append(value_of(piece, variables, quoted=quoted))
    if quoted:
        raise DockerfileError(f"{text!r}: a quote is not closed")
    return "".join(done)


def value_of(piece: re.Match[str], variables: Mapping[str, str], *, quoted: bool) -> str:
    if piece["escaped"]:
        return piece["escaped"] if quoted and piece["escaped"][1] not in '"$\\' else piece["escaped"][1]
    if piece["plain"]:
        return variables.get(piece["plain"], "")
    if piece["name"]:
        value, operator = variables.get(piece["name"]), piece["operator"] or ""
        there = bool(value) if operator.startswith(":") else value is not None
        if operator.endswith("+"):
            return piece["word"] if there else ""
        return value or "" if there or not operator else piece["word"]
    return piece["single"] or piece["text"] or ""
