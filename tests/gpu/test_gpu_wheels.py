"""`make gpu-wheels`: what is carried to a machine with a GPU, and how it is unpacked there."""

from __future__ import annotations

import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import collect_wheels
import pytest
import start
from run_checks import ROOT
from slim_wheel import pack_again


def test_wheels_have_the_versions_of_the_constraints() -> None:
    constraints = "av==18.1.0\nzarr==3.1.6  # a comment\nzarr-extra==1\n"
    assert collect_wheels.pinned("zarr==3.1.6\nav==18.1.0\n", ["av", "zarr"]) == ["av==18.1.0", "zarr==3.1.6"]
    with pytest.raises(KeyError):
        collect_wheels.pinned(constraints, ["numcodecs"])
    everything = (ROOT / "constraints.txt").read_text()
    assert len(collect_wheels.pinned(everything, collect_wheels.PACKAGES)) == len(collect_wheels.PACKAGES)


def test_libraries_for_other_ffmpegs_are_taken_out_of_torchcodecs_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "torchcodec-0.16.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    kinds = ("core", "custom_ops", "pybind_ops")
    kept = [f"torchcodec/libtorchcodec_{kind}8.so" for kind in kinds]
    kept += ["torchcodec/__init__.py", "torchcodec/libtorchcodec_image.so", "torchcodec-0.16.0.dist-info/METADATA"]
    others = [f"torchcodec/libtorchcodec_{kind}{version}.so" for kind in kinds for version in (4, 5, 6, 7, 9)]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in [*kept, *others, "torchcodec/libtorchcodec_heic.so"]:
            archive.writestr(name, name)
    assert pack_again(wheel) == 16
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(archive.namelist()) == sorted(kept)
        assert all(archive.read(name) == name.encode() for name in kept)
    assert list(tmp_path.iterdir()) == [wheel]


def test_what_a_gpu_does_not_need_is_taken_out_of_pynvvideocodecs_wheel(tmp_path: Path) -> None:
    """Each library of FFmpeg is kept under the name that the loader asks for."""
    wheel = tmp_path / "pynvvideocodec-2.2.4-cp312-cp312-manylinux_2_28_x86_64.whl"
    kept = ["PyNvVideoCodec/__init__.py", "PyNvVideoCodec/PyNvVideoCodec_130.cpython-312-x86_64-linux-gnu.so"]
    kept += ["PyNvVideoCodec/libavformat.so.63", "pynvvideocodec./libcudart-c64a25f3.so.12.3.101"]
    kept += ["PyNvVideoCodec/decoders/SimpleDecoder.py", "pynvvideocodec-2.2.4.dist-info/METADATA"]
    others = ["PyNvVideoCodec/libavformat.so", "PyNvVideoCodec/libavformat.so.63.1.101", "samples/advanced/decode.py"]
    others += ["pynvvideocodec-2.2.4.data/data/external/ffmpeg/src/ffmpeg-9.0.1.tar.xz", "benchmarks/some.py"]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in [*kept, *others]:
            archive.writestr(name, name)
    assert pack_again(wheel) == len(others)
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(archive.namelist()) == sorted(kept)


def test_what_is_too_large_to_be_carried_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that are not committed yet travel too, ignored ones do not, and each file takes a kilobyte more."""
    root, folder = tmp_path / "checkout", tmp_path / "wheels"
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    for name, content in ((".gitignore", b"ignored\n"), ("new.py", bytes(3000)), ("ignored", bytes(1 << 20))):
        (root / name).write_bytes(content)
    (folder / "one.whl").write_bytes(bytes(500))
    monkeypatch.setattr(collect_wheels, "ROOT", root)
    needed = 8 + 3000 + 500 + 3 * 1024
    monkeypatch.setattr(collect_wheels, "ROOM_BYTES", needed)
    collect_wheels.report(folder)
    assert "one.whl" in capsys.readouterr().out
    monkeypatch.setattr(collect_wheels, "ROOM_BYTES", needed - 1)
    with pytest.raises(SystemExit, match="too large to be carried"):
        collect_wheels.report(folder)


def test_wheels_are_unpacked_beside_torch_and_those_for_another_machine_or_python_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    monkeypatch.setattr(start, "WHEELS", wheels)
    wheel = wheels / "av-18.1.0-cp311-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("av/__init__.py", "x = 1\n" * 1000)
    pack_again(wheel)
    (wheels / "python").write_text("3.7\n")
    assert start.for_another_python().startswith("the wheels are for Python 3.7, and ")
    (wheels / "python").write_text(f"{sys.version_info.major}.{sys.version_info.minor}\n")
    assert start.for_another_python() == start.for_another_machine() == ""
    (wheels / "machine").write_text("sparc\n")
    assert start.for_another_machine().startswith("the wheels are for sparc, and ")
    (wheels / "machine").write_text(f"{platform.machine()}\n")
    assert start.for_another_machine() == ""
    assert start.unpack_wheels(site) == ""
    assert (site / "av" / "__init__.py").read_text() == "x = 1\n" * 1000
    wheel.write_bytes(wheel.read_bytes()[:-20])
    assert start.unpack_wheels(site).startswith(f"{wheel.name} cannot be unpacked into {site}: ")


def test_where_the_checkout_cannot_be_written_another_folder_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "SITE", tmp_path / "gpu_site")
    (tmp_path / "gpu_site" / "of an earlier run").mkdir(parents=True)
    assert start.empty_site() == tmp_path / "gpu_site"
    assert list((tmp_path / "gpu_site").iterdir()) == []
    (tmp_path / "file").touch()
    monkeypatch.setattr(start, "SITE", tmp_path / "file" / "gpu_site")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = start.empty_site()
    assert other.name == "gpu_site"
    assert other.is_dir()
    assert f"results go to {other.parent}" in capsys.readouterr().out


def test_an_ffmpeg_that_cannot_be_unpacked_is_told_and_nothing_of_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged, or by a Python without lzma."""
    monkeypatch.setattr(start, "FFMPEG", tmp_path / "ffmpeg.xz")
    whole, program = lzma.compress(bytes(range(256)) * 1000), tmp_path / "program"
    start.FFMPEG.write_bytes(whole)
    assert start.unpack_ffmpeg(program) == ""
    assert program.read_bytes() == bytes(range(256)) * 1000
    start.FFMPEG.write_bytes(whole[:-40])
    assert start.unpack_ffmpeg(program).startswith(f"ffmpeg.xz cannot be unpacked into {tmp_path}: ")
    assert not program.exists()
    monkeypatch.setitem(sys.modules, "lzma", None)
    assert start.unpack_ffmpeg(program).startswith(f"ffmpeg.xz cannot be unpacked into {tmp_path}: ")


def test_what_is_said_before_the_checks_is_kept_in_a_pipe(tmp_path: Path) -> None:
    """The checks take the process over. In a Python without packages it is said that most will fail."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONUNBUFFERED", "PYTHONPATH")}
    checkout = tmp_path / "checkout"
    for folder in ("gpu_check", "scripts"):
        shutil.copytree(ROOT / folder, checkout / folder)
    (checkout / "gpu_check" / "run_checks.py").write_text("print('the checks')")
    argv = [sys.executable, "-I", "-S", str(checkout / "gpu_check" / "start.py")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    first, *_, last = done.stdout.splitlines()
    assert "has no shortgop, av, numcodecs, zarr, google_crc32c, and gpu_wheels has no wheels" in first
    assert last == "the checks"


def test_checks_of_the_ffmpeg_program_import_no_wheel() -> None:
    """They run where only the program was carried, beside a torch, which has numpy."""
    wheels = ["av", "donfig", "google_crc32c", "numcodecs", "packaging", "yaml", "zarr"]
    code = f"import sys; sys.modules.update(dict.fromkeys({wheels})); import gpu_ffmpeg"
    path = os.pathsep.join([str(ROOT / "gpu_check"), os.environ.get("PYTHONPATH", "")])
    argv, env = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine may have a GPU")
def test_with_wheels_for_another_python_what_needs_none_runs_and_the_reason_comes_last(tmp_path: Path) -> None:
    why = "the wheels are for Python 3.7"
    done = subprocess.run(
        [sys.executable, str(ROOT / "gpu_check" / "run_checks.py"), "--results", str(tmp_path), "--lacking", why],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (1, f"gpu-check: all other checks need the wheels: {why}")
    found = json.loads((tmp_path / "gpu-none.json").read_text())
    assert [check["name"] for check in found["checks"]] == ["environment", "nvdec-caps"]
