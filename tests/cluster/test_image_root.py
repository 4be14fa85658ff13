"""What `make image-check` makes of a Dockerfile: its plan, and what it refuses. No step is run here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from debian_roots import base_of, mounted_below
from docker_files import Identity, identity, is_ignored, patterns, place
from dockerfile_steps import DockerfileError, Step, expanded, seconds
from hypothesis import given
from hypothesis import strategies as st
from image_root import named_paths, passed_settings

from cluster_files import ROOT

_FROM = "FROM python:3.11.1-slim-bookworm AS one\n"


def plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the parser has threads, and other tests fork."""
    if importlib.util.find_spec("dockerfile") is None:
        pytest.skip("there is no wheel of Docker's parser for this machine")
    command = [sys.executable, str(ROOT / "scripts" / "image_root.py"), "--plan", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_both_images_can_be_made() -> None:
    done = plan("--target", "cpu", "cuda")
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    froms = [line.split(" AS ")[1] for line in lines if line.startswith("FROM")]
    assert froms == ["base", "build", "build-cpu", "build-cuda", "run", "cuda", "cpu"]
    assert lines[-1].strip() == "-- user 1000 in /home/shortgop, health check: shortgop doctor"
    assert "build-cuda" not in plan("--target", "cpu").stdout


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_FROM + "BOGUS a", "line 2: BOGUS: this instruction is not known here"),
        (_FROM + "ADD a b", "line 2: ADD: this instruction is not known here"),
        (_FROM + "RUN --mount=type=cache,target=/x true", "line 2: RUN: the flag --mount is not known here"),
        (_FROM + "COPY --chown=1 a b", "the flag --chown is not known here"),
        (_FROM + "RUN <<E\ntrue\nE", "here-documents are not known here"),
        (_FROM + "COPY --from=two a b", "no stage before it is called two"),
        (_FROM + _FROM, "there are two stages one"),
        (_FROM + "USER ${A:?}", "is no form of a variable"),
        ("FROM debian:12 AS one", "only python:VERSION-slim-SUITE can be stood in for"),
        ("FROM python:3.11.1-slim-bookworm AS two", "there is no stage one; there are two"),
        ("RUN true\n" + _FROM, "only ARG may stand before"),
        ("", "file with no instructions"),
    ],
)
def test_what_is_not_known_is_an_error(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(text)
    done = plan("--file", str(file), "--target", "one")
    assert done.returncode != 0
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_build_arguments_have_to_be_declared() -> None:
    assert "no ARG declares NOTHING" in plan("--build-arg", "NOTHING=1").stderr
    assert "NAME=VALUE was expected" in plan("--build-arg", "NOTHING").stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/bin:$A", "/bin:1"),
        ("${A}b$NONE", "1b"),
        ("${NONE:-x}${A:+y}${EMPTY:-z}${EMPTY-z}", "xyz"),
        ("'$A' \"$A'\" \\$A", "$A 1' $A"),
    ],
)
def test_variables_mean_what_they_mean_to_docker(text: str, value: str) -> None:
    assert expanded(text, {"A": "1", "EMPTY": ""}) == value


@given(st.text(st.characters(exclude_characters="'\"\\$")), st.text())
def test_other_text_stays_as_it_is(text: str, value: str) -> None:
    assert expanded(text, {}) == text
    assert expanded(f"{text}${{A}}'{text}'", {"A": value}) == text + value + text


@pytest.mark.parametrize("text", ["'", '"', "${A", "${A:?no}"])
def test_broken_words_are_errors(text: str) -> None:
    with pytest.raises(DockerfileError):
        expanded(text, {})


def test_times() -> None:
    assert seconds("1m30s", Step("HEALTHCHECK", ())) == 90
    with pytest.raises(DockerfileError, match="no time like 1m30s"):
        seconds("5 minutes", Step("HEALTHCHECK", ()))


def test_ignored_files() -> None:
    ignored = patterns("# comment\n.git\nscripts/*.py\n**/__pycache__\ndocs\n!docs/kept.md\n")
    assert all(is_ignored(path, ignored) for path in (".git/config", "scripts/a.py", "a/__pycache__/b", "docs/a.md"))
    assert not any(is_ignored(path, ignored) for path in ("git", "scripts/a.sh", "scripts/a/b.py", "docs/kept.md"))


def test_links_of_an_image_stay_in_it(tmp_path: Path) -> None:
    (tmp_path / "etc").symlink_to("/usr/etc")
    (tmp_path / "up").symlink_to("../../..")
    (tmp_path / "round").symlink_to("round")
    assert place(tmp_path, "/etc/hosts") == tmp_path / "usr/etc/hosts"
    assert place(tmp_path, "/up/etc") == tmp_path / "usr/etc"
    assert place(tmp_path, "../..") == tmp_path
    with pytest.raises(OSError, match="go round"):
        place(tmp_path, "/round")


def test_who_a_user_is() -> None:
    passwd, group = "root:x:0:0::/root:/bin/sh\nme:x:1000:1001::/home/me:/bin/sh\n", "video:x:44:me\nmine:x:1001:\n"
    me = Identity(1000, 1001, (44, 1001), "/home/me")
    assert identity("me", passwd, group) == identity("1000", passwd, group) == me
    assert identity("1000:video", passwd, group) == Identity(1000, 44, (44,), "/home/me")
    assert identity("7", passwd, group) == Identity(7, 0, (0,), "/")
    with pytest.raises(ValueError, match="no user you"):
        identity("you", passwd, group)


def test_only_settings_of_indexes_are_passed_on() -> None:
    settings = passed_settings({"PIP_FIND_LINKS": "/wheels file:///more", "https_proxy": "x", "HOME": "/root"})
    assert settings == {"PIP_FIND_LINKS": "/wheels file:///more", "https_proxy": "x"}
    assert named_paths(settings) == [Path("/wheels"), Path("/more")]


def test_bases_and_mounts() -> None:
    assert base_of("python:3.11.14-slim-bookworm@sha256:65") == ("11", "bookworm")
    assert mounted_below(Path("/a"), "1 2 0:1 / /a/proc rw\n1 2 0:1 / /ab rw\n") == ["/a/proc"]
