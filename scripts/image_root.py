"""Runs the steps of a Dockerfile without Docker, each stage in a root of its own, then what the image is for.

    python scripts/image_root.py --target cpu cuda
    python scripts/image_root.py --target cpu --plan       # only says what would be run; needs neither root nor network

Debian with its own Python stands in for a base python:VERSION-slim-SUITE; debootstrap makes it. Then RUN, COPY, ENV and
so on are done in order, as Docker does them: in a clean environment, as the user of the step, each command in mount and
process namespaces of its own, so that no mount outlives it. At last the health check, the image's own command and a
small job run as the image's user, without a network.

Steps that use the network have what the caller has: the environment's settings of pip (PIP_*), proxies and certificates
are passed on, and paths that they name are mounted read-only; --share names more. Nothing of that stays in a root.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from debian_roots import StepFailedError, base_of, make_base, remove, run_here, run_inside, size_gb, user_of
from docker_files import copy_context, place
from dockerfile_steps import (
    Config,
    DockerfileError,
    Stage,
    Step,
    after,
    command_line,
    expanded,
    needed,
    parsed,
    stages,
)

_CHECKOUT = Path(__file__).parents[1]
_PASSED = re.compile(
    r"PIP_\w+|(https?|ftp|no|all)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE", re.IGNORECASE
)
_TOOLS = ("bash", "chroot", "cp", "debootstrap", "du", "ip", "mount", "rm", "unshare")
_DATASET = "/scratch/check/dataset"
_VIDEO = """
import os, subprocess, imageio_ffmpeg
assert os.getuid() != 0
source = ["-f", "lavfi", "-i", "testsrc=size=320x240:rate=25:duration=4"]
os.mkdir("/scratch/check")
subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *source, "/scratch/check/video.mp4"], check=True)
"""
_FRAME = f"""
import os, shortgop
assert os.getuid() != 0
(video,) = shortgop.open("{_DATASET}")
frame = video.get_frames_at([50]).data
print(len(video), "frames; frame 50 is", tuple(frame.shape), "with a mean of", round(float(frame.float().mean()), 1))
assert (len(video), tuple(frame.shape)) == (100, (1, 3, 64, 86)), "not what was prepared"
assert 50 < float(frame.float().mean()) < 200, "not the picture that was prepared"
"""
_JOB = (
    ("a video is made", ["python", "-c", _VIDEO]),
    (
        "shortgop prep",
        ["shortgop", "prep", "/scratch/check/video.mp4", "--out", _DATASET, "--size", "64"],
    ),
    ("shortgop verify", ["shortgop", "verify", _DATASET, "--decode"]),
    ("a frame is read", ["python", "-c", _FRAME]),
)


@dataclass(frozen=True)
class Built:
    root: Path
    config: Config


@dataclass
class Roots:
    """The roots of all stages, in one folder, and what their steps have from the caller."""

    folder: Path
    mirror: str | None
    passed: Mapping[str, str]
    shared: Sequence[Path]
    build_args: Mapping[str, str]
    top_args: Mapping[str, str]
    built: dict[str, Built] = field(default_factory=dict)

    def build(self, stage: Stage) -> None:
        root = self.folder / f"stage-{len(self.built)}"
        print(f"FROM {stage.base} AS {stage.name}", flush=True)
        if stage.base in self.built:
            with timed(f"a copy of the root of {stage.base}"):
                run_here(["cp", "--archive", "--reflink=auto", str(self.built[stage.base].root), str(root)])
            config = self.built[stage.base].config
        else:
            with timed("debootstrap"):
                make_base(stage.base, root, self.mirror)
            config = Config()
        for step in stage.steps:
            with timed(shortened(step.text)):
                config = self.do(step, root, config)
        self.built[stage.name] = Built(root, config)
        print(f"{size_gb(root):6.2f} GB  the root of {stage.name}", flush=True)

    def do(self, step: Step, root: Path, config: Config) -> Config:
        if step.name == "RUN":
            command = command_line(config, step.words, is_json=step.is_json)
            environment = {**self.passed, **config.variables()}
            run_inside(root, config, command, environment, shared=self.shared)
        if step.name == "COPY":
            self.copy(step, root, config)
        config = after(config, step, self.build_args, self.top_args)
        if step.name == "WORKDIR":
            place(root, config.workdir).mkdir(parents=True, exist_ok=True)
        return config

    def copy(self, step: Step, root: Path, config: Config) -> None:
        """What is copied belongs to root, wherever it comes from."""
        *sources, target = [expanded(word, config.variables()) for word in step.words]
        source_root = self.built[step.flags["from"]].root if "from" in step.flags else self.folder / "context"
        to = place(root, str(PurePosixPath(config.workdir, target)))
        into = target.endswith(("/", ".")) or to.is_dir()
        if not sources or (len(sources) > 1 and not into):
            raise step.wrong("sources and a place were expected; for several sources a folder that ends in a slash")
        for source in sources:
            from_ = place(source_root, source)
            if not from_.exists():
                raise step.wrong(
                    f"{source} does not exist" + ("; patterns are not known here" if "*" in source else "")
                )
            # Of a folder its contents are copied, not itself.
            (to if into or from_.is_dir() else to.parent).mkdir(parents=True, exist_ok=True)
            what = f"{from_}/." if from_.is_dir() else str(from_)
            run_here(["cp", "--archive", "--no-preserve=ownership", "--reflink=auto", what, str(to)])


def check(built: Built, name: str) -> None:
    """What the image is for, as its user: the health check, its command, a job."""
    config, root = built.config, built.root
    if user_of(root, config).uid == 0:
        raise DockerfileError(f"{name}: its user is root")
    if config.health is None:
        raise DockerfileError(f"{name}: it has no HEALTHCHECK")
    print(f"The image {name} as user {config.user}, without a network", flush=True)
    health = ("HEALTHCHECK " + " ".join(config.health.command), config.health.command, config.health.timeout_s)
    jobs = [(what, command, 300.0) for what, command in _JOB]
    for what, command, timeout_s in [health, ("CMD " + " ".join(config.command), config.command, 60.0), *jobs]:
        if not command:
            continue
        with timed(shortened(what)):
            said = run_inside(root, config, command, config.env, has_network=False, timeout_s=timeout_s)
        print("".join(f"           | {line}\n" for line in said.splitlines()[-12:]), end="", flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    except (StepFailedError, DockerfileError, OSError):
        print(f"{time.monotonic() - began:8.1f} s  FAILED: {what}", flush=True)
        raise
    print(f"{time.monotonic() - began:8.1f} s  {what}", flush=True)


def shortened(text: str) -> str:
    return text if len(text) <= 110 else text[:107] + "..."


def passed_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that say how pip and others reach their indexes."""
    return {name: value for name, value in environment.items() if _PASSED.fullmatch(name)}


def named_paths(settings: Mapping[str, str]) -> list[Path]:
    """The absolute paths and file: URLs in them."""
    words = (word for value in settings.values() for word in value.split())
    return [Path(urlsplit(word).path) for word in words if word.startswith(("/", "file:///"))]


def without_nested(paths: Sequence[Path]) -> list[Path]:
    """The paths that exist, and lie in no other one of them."""
    there = sorted({path for path in paths if path.exists()})
    return [path for path in there if not set(path.parents) & set(there)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=_CHECKOUT / "Dockerfile")
    parser.add_argument("--target", nargs="+", default=["cpu"], help="stages to build and check [cpu]")
    parser.add_argument("--build-arg", action="append", type=name_and_value, default=[], metavar="NAME=VALUE")
    parser.add_argument("--share", action="append", type=Path, default=[], help="a path that RUN steps may read")
    parser.add_argument("--mirror", help="the URL where debootstrap finds Debian, in place of its own")
    parser.add_argument("--folder", type=Path, help="where the roots lie: a few GB for each stage [TMPDIR]")
    parser.add_argument("--keep", action="store_true", help="leave the roots where they are")
    parser.add_argument("--plan", action="store_true", help="only say what would be run")
    return parser.parse_args()


def name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"NAME=VALUE was expected, not {text!r}")
    return name, value


def main() -> None:
    options = arguments()
    try:
        build_args = dict(options.build_arg)
        found, top_args = stages(parsed(options.file.read_text()), build_args)
        wanted = needed(found, options.target)
        for stage in wanted:
            if stage.base not in found:
                base_of(stage.base)
        if options.plan:
            print_plan(wanted, build_args, top_args)
            return
        build_and_check(options, wanted, build_args, top_args)
    except (DockerfileError, StepFailedError, OSError) as error:
        sys.exit(f"image_root: {error}")


def print_plan(wanted: Sequence[Stage], build_args: Mapping[str, str], top_args: Mapping[str, str]) -> None:
    configs: dict[str, Config] = {}
    for stage in wanted:
        print(f"FROM {stage.base} AS {stage.name}")
        config = configs.get(stage.base, Config())
        for step in stage.steps:
            config = after(config, step, build_args, top_args)
            print(f"{step.line:4}  {step.text}")
        configs[stage.name] = config
        command = " ".join(config.health.command) if config.health else "none"
        print(f"      -- user {config.user} in {config.workdir}, health check: {command}")


def build_and_check(
    options: argparse.Namespace, wanted: Sequence[Stage], build_args: Mapping[str, str], top_args: Mapping[str, str]
) -> None:
    if os.geteuid() != 0:
        raise DockerfileError("roots can be made only by root; --plan says what would be run")
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        raise DockerfileError(
            f"not found on the PATH: {', '.join(missing)}; on Debian: apt install debootstrap iproute2"
        )
    if missing_paths := [path for path in options.share if not path.exists()]:
        raise DockerfileError(f"--share {missing_paths[0]}: this path does not exist")
    # Ended by SIGTERM, the roots are removed too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("image_root: ended by SIGTERM"))
    os.umask(0o022)
    passed = passed_settings(os.environ)
    shared = without_nested([*named_paths(passed), *(path.absolute() for path in options.share)])
    folder = Path(tempfile.mkdtemp(prefix="image-root-", dir=options.folder)).resolve()
    try:
        roots = Roots(folder, options.mirror, passed, shared, build_args, top_args)
        copy_context(options.file.absolute().parent, folder / "context")
        for stage in wanted:
            roots.build(stage)
        for target in options.target:
            check(roots.built[target], target)
    finally:
        if options.keep:
            print(f"The roots lie in {folder}")
        else:
            remove(folder)


if __name__ == "__main__":
    main()
