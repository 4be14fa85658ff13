"""Where the driver's libraries are found: `cuda_driver`, and what Triton is told of it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from shortgop.errors import ToolError
from shortgop.readers.gpu import cuda_driver, triton_conversion

MAPPED = "7f0000000000-7f0000001000 r-xp 00000000 00:2d 77 "


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose driver lies below a folder: known places `first` and `last`, and libcuda in `beside`."""
    for name in ("first", "beside", "last"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(cuda_driver, "FOLDERS", (str(tmp_path / "first"),))
    monkeypatch.setattr(cuda_driver, "_MORE_FOLDERS", (str(tmp_path / "last"),))
    maps = tmp_path / "maps"
    lines = ("7f0000002000-7f0000003000 rw-p 00000000 00:00 0", f"{MAPPED}{tmp_path}/beside/libcuda.so.580.95.05")
    maps.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(cuda_driver, "_MAPS", maps)
    return tmp_path


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the loader is asked for. It finds no library of the driver by itself, and none in a file without bytes."""
    asked: list[str] = []

    def load(name: str, **_: Any) -> str:
        asked.append(name)
        if not (Path(name).is_absolute() and Path(name).read_bytes()):
            raise OSError(f"{name}: cannot open shared object file")
        return name

    monkeypatch.setattr(ctypes, "CDLL", load)
    return asked


def test_a_library_is_looked_for_beside_libcuda_and_under_its_whole_name(places: Path, loading: list[str]) -> None:
    """In each folder the usual name comes first. The version is not that of libcuda's file."""
    for file in ("first/libnvcuvid.so.580.95", "first/libnvcuvid.so.1", "beside/libnvcuvid.so.1"):
        (places / file).touch()
    whole = places / "last" / "libnvcuvid.so.580.95"
    whole.write_bytes(b"ELF")
    assert cuda_driver.load("libnvcuvid.so.1") == str(whole)
    asked = list(dict.fromkeys(loading))
    files = ("first/libnvcuvid.so.1", "first/libnvcuvid.so.580.95", "beside/libnvcuvid.so.1")
    assert asked == ["libnvcuvid.so.1", *(str(places / file) for file in files), str(whole)]


def test_a_library_of_libcudas_version_comes_before_one_that_the_loader_finds(places: Path, loading: list[str]) -> None:
    """An image that was made on a machine with another driver may have its libraries."""
    (places / "first" / "libnvcuvid.so.1").write_bytes(b"ELF of driver 535")
    own = places / "last" / "libnvcuvid.so.580.95.05"
    own.write_bytes(b"ELF")
    assert cuda_driver.load("libnvcuvid.so.1") == str(own)
    assert loading == [str(own)]


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("libnvcuvid.so.535.230.02", "libnvcuvid.so.535.230.02 is of driver 535.230.02, and libcuda of 580.95.05"),
        ("libnvcuvid.so.580.95.05", None),
        ("libnvcuvid.so.1", None),
        ("libcurl.so.4", None),
    ],
)
def test_libraries_of_two_drivers_are_named(places: Path, file: str, said: str | None) -> None:
    with (places / "maps").open("a") as maps:
        maps.write(f"{MAPPED}{places}/first/{file}\n")
    found = cuda_driver.other_driver("libnvcuvid.so.1")
    assert said in found if said else not found


def test_a_library_that_lies_nowhere_is_an_error_that_says_what_to_do(places: Path, loading: list[str]) -> None:
    (places / "beside" / "libnvcuvid.so.1").touch()
    with pytest.raises(ToolError, match="NVIDIA_DRIVER_CAPABILITIES=video"):
        cuda_driver.load("libnvcuvid.so.1")


def test_triton_is_told_of_libcuda_only_where_it_has_the_name_that_triton_looks_for(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Set first, so that the variable is gone after the test.
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", "")
    monkeypatch.delenv("TRITON_LIBCUDA_PATH")
    triton_conversion._show_libcuda()
    assert "TRITON_LIBCUDA_PATH" not in os.environ
    (places / "beside" / "libcuda.so.1").touch()
    triton_conversion._show_libcuda()
    assert os.environ["TRITON_LIBCUDA_PATH"] == str(places / "beside")


def test_no_library_is_found_in_a_process_that_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_MAPS", tmp_path / "missing")
    assert cuda_driver.loaded_file("libcuda.so") is None


@pytest.mark.parametrize("error", [214, 226, 700, 716, 719, 721, 810, 911])
def test_an_error_after_which_all_calls_of_a_process_fail_says_to_start_it_again(error: int) -> None:
    """CUDA's header says so of these: the process must be terminated."""
    assert "this process cannot use CUDA any more: start it again" in cuda_driver.error_name(None, error)


@pytest.mark.parametrize("error", [1, 2, 201, 720, 801, 999])
def test_an_error_of_one_call_does_not(error: int) -> None:
    assert cuda_driver.error_name(None, error) == f"error {error}"


def test_the_driver_is_looked_for_where_systems_of_this_processor_have_it() -> None:
    """Debian and Ubuntu keep libraries in a folder with the processor's name, as on Grace Hopper (not tried there)."""
    script = textwrap.dedent("""
        import platform
        platform.machine = lambda: "aarch64"
        from shortgop.prep.running import driver_folder
        from shortgop.readers.gpu import cuda_driver
        print(cuda_driver.FOLDERS[2], driver_folder.SYSTEM_FOLDERS[0])
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["/usr/lib/aarch64-linux-gnu"] * 2
