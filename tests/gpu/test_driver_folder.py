"""Where ffmpeg finds NVIDIA's driver: in a folder that the loader does not know, as clouds mount it into containers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shortgop.prep.running import driver_folder, processes
from shortgop.prep.running.driver_folder import files_without_links, hidden_driver, with_driver
from shortgop.readers.gpu.cuda_driver import driver_folders


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(has_driver(), reason="the loader finds a driver here")


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a driver, the second of those that are looked at."""
    folder = tmp_path / "lib64"
    folder.mkdir()
    (folder / "libcuda.so.1").touch()
    monkeypatch.setattr(driver_folder, "FOLDERS", (str(tmp_path / "lib"), str(folder)))
    return folder


@pytest.mark.parametrize(("named", "behind"), [("", ""), ("/opt/lib", "/opt/lib:")])
def test_programs_find_a_driver_in_a_folder_that_the_loader_does_not_know(
    mounted: Path, monkeypatch: pytest.MonkeyPatch, named: str, behind: str
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", named)
    done = processes.run(["sh", "-c", "printf %s $LD_LIBRARY_PATH"], timeout_seconds=20)
    assert done.stdout.decode() == f"{behind}{mounted}"


def test_without_a_driver_nothing_is_changed(mounted: Path) -> None:
    (mounted / "libcuda.so.1").unlink()
    assert with_driver({"A": "b"}) == {"A": "b"}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("loaded_by", ["path", "name"])
def test_what_this_process_has_loaded_by_its_path_is_still_hidden_from_others(tmp_path: Path, loaded_by: str) -> None:
    """In a process of its own, since a library stays loaded. Where the loader finds another one by its name, that is
    the driver."""
    for folder in ("hidden", "known"):
        library = tmp_path / folder / "libcuda.so.1"
        library.parent.mkdir()
        options = ["-shared", "-fPIC", "-x", "c", "/dev/null", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(["gcc", *options, "-o", str(library)], check=True)
    hidden = tmp_path / "hidden"
    script = (
        "import ctypes, sys\n"
        "from shortgop.prep.running.driver_folder import hidden_driver\n"
        f"ctypes.CDLL({str(hidden / 'libcuda.so.1') if loaded_by == 'path' else 'libcuda.so.1'!r})\n"
        f"print(hidden_driver(({str(hidden)!r},)))\n"
    )
    search = [os.environ.get("LD_LIBRARY_PATH", ""), *([str(tmp_path / "known")] if loaded_by == "name" else [])]
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, search))}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (str(hidden) if loaded_by == "path" else "None")


def test_a_folder_without_libcuda_is_none() -> None:
    assert hidden_driver(("/nonexistent",)) is None


NVCUVID, ENCODE = "libnvcuvid.so.580.95.05", "libnvidia-encode.so.580.95.05"


@pytest.mark.parametrize(
    ("there", "loaded"),
    [
        # Links of no library were made, or of libcuda alone.
        (("libcuda.so.580.95.05", NVCUVID, ENCODE), ("libcuda.so.580.95.05", NVCUVID, ENCODE)),
        (("libcuda.so.580.95.05", "libcuda.so.1", NVCUVID, ENCODE), (NVCUVID, ENCODE)),
        # A container without the capability "video", and one with all links.
        (("libcuda.so.580.95.05", "libcuda.so.1"), ()),
        (("libcuda.so.580.95.05", "libcuda.so.1", NVCUVID, "libnvcuvid.so.1"), ()),
        # An image that was made on a machine with another driver; no driver; no version.
        (("libcuda.so.580.95.05", "libcuda.so.1", "libnvcuvid.so.535.230.02"), ()),
        ((NVCUVID,), ()),
        (("libcuda.so.1", NVCUVID), ()),
    ],
)
def test_libraries_without_the_names_that_ffmpeg_asks_for_are_loaded_before(
    tmp_path: Path, there: tuple[str, ...], loaded: tuple[str, ...]
) -> None:
    for name in there:
        if name.endswith(".so.1") and (whole := name.replace(".so.1", ".so.580.95.05")) in there:
            (tmp_path / name).symlink_to(whole)
        else:
            (tmp_path / name).touch()
    assert files_without_links((str(tmp_path),)) == tuple(str(tmp_path / name) for name in loaded)


def test_folders_that_cannot_be_looked_into_and_files_that_cannot_be_loaded_are_passed_over(tmp_path: Path) -> None:
    """A path that is too long is an error for Path.exists, as is a folder that the user may not enter."""
    spaced, narrow, there = (tmp_path / name for name in ("a folder", "lib32", "lib64"))
    for folder, content in ((spaced, b""), (narrow, b"\x7fELF\x01"), (there, b"\x7fELF\x02")):
        folder.mkdir()
        for name in ("libcuda.so.580.95.05", NVCUVID):
            (folder / name).write_bytes(content)
    folders = ("/" + "x" * 300, str(spaced), str(narrow))
    assert files_without_links(folders) == ()
    assert hidden_driver(folders) is None
    assert files_without_links((*folders, str(there))) == tuple(
        str(there / name) for name in ("libcuda.so.580.95.05", NVCUVID)
    )


def test_what_a_user_has_loaded_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libcuda.so.580.95.05", NVCUVID):
        (tmp_path / name).touch()
    monkeypatch.setattr(driver_folder, "SYSTEM_FOLDERS", (str(tmp_path),))
    found = with_driver({"LD_PRELOAD": "libjemalloc.so.2", "A": "b"})
    assert found == {
        "LD_PRELOAD": f"libjemalloc.so.2 {tmp_path}/libcuda.so.580.95.05 {tmp_path}/{NVCUVID}",
        "A": "b",
    }


def test_the_reader_looks_wherever_programs_are_told_to() -> None:
    """prep and the reader know nothing of each other, and each has its list."""
    known = {*driver_folder.FOLDERS, *driver_folder.SYSTEM_FOLDERS}
    assert set(map(Path, known)) <= set(driver_folders())
