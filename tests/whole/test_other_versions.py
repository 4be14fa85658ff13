"""The program behind `make versions`: what it compares, and that it notices a difference."""

import sys
from pathlib import Path

import pytest
import torch

import other_versions


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("versions") / "datasets"
    folder.mkdir()
    other_versions.make_datasets(folder, codecs=("h264",))
    return folder


def test_the_same_versions_read_the_same_and_a_pixel_that_differs_is_noticed(
    datasets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = other_versions.readings(datasets)
    found, versions = other_versions.read_by(Path(sys.executable), datasets)
    assert "torch" in versions
    assert other_versions.compare("here", found, expected)
    assert f"of {len(expected)} kinds of reads, 0 differ by one level at most, 0 by more" in capsys.readouterr().out
    expected["h264, resized"][-1] += 1
    assert not other_versions.compare("here", found, expected)
    assert "1 by more: {'h264, resized': 1.0}" in capsys.readouterr().out


def test_only_colours_that_older_ffmpegs_round_otherwise_may_differ_by_a_level(datasets: Path) -> None:
    found = other_versions.readings(datasets)
    assert other_versions.wrong_ones({"h264, grey": 1.0, "h264, ycbcr": 1.0, "h264, as they are": 0.0}) == {}
    assert other_versions.wrong_ones({"h264, grey": 2.0, "h264, yuv420": 1.0}) == {"h264, grey": 2, "h264, yuv420": 1}
    assert other_versions.difference(found["h264, batches"][:-1], found["h264, batches"]) == float("inf")
    assert other_versions.difference(None, torch.zeros(1)) == float("inf")


def test_the_oldest_versions_are_those_from_which_on_shortgop_installs() -> None:
    sets = other_versions.version_sets()
    python, oldest = sets["oldest"]
    assert python is None
    assert {"av==15", "zarr==3.1", "torch==2.6", "numpy==2"} <= set(oldest)
    assert {"av", "zarr", "torch", "numpy"} <= set(sets["newest"][1])
