"""The example that trains on a dataset of one's own goes on where it was stopped, and comes to the same weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import train_on_labels
from training_videos import make_videos

OPTIONS = "--frames 4 --fps 30000/1001 --side 16 --clips-per-video 4 --batch-size 2 --every 1 --epochs 2 --workers 0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("labels"))


def run(folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    arguments = [str(folder), "--checkpoint", str(checkpoint), *OPTIONS.split(), *options]
    monkeypatch.setattr(sys, "argv", ["train_on_labels.py", *arguments])
    train_on_labels.main()


def test_it_goes_on_in_mid_epoch_and_comes_to_the_same_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--label", "kind", "--held-out", "0")
    run(folder, tmp_path / "whole.pt", monkeypatch, *options)
    assert "2 classes, 3 videos for training, 0 for validation" in capsys.readouterr().out

    save, saved = train_on_labels.save, 0

    def save_and_stop(*what: Any) -> None:
        nonlocal saved
        save(*what)
        saved += 1
        if saved == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(train_on_labels, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run(folder, tmp_path / "parts.pt", interrupted, *options)
    capsys.readouterr()
    run(folder, tmp_path / "parts.pt", monkeypatch, *options)
    assert [line[:8] for line in capsys.readouterr().out.splitlines()][1:3] == ["epoch 0:", "epoch 1:"]

    whole, parts = (torch.load(tmp_path / name, weights_only=True) for name in ("whole.pt", "parts.pt"))
    assert parts["loader"] == whole["loader"]
    for name, values in whole["model"].items():
        assert torch.equal(parts["model"][name], values)


def test_labels_may_be_numbers_and_some_files_are_held_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [train_on_labels.is_held_out(f"s3://bucket/{name}.mp4", 0.7) for name in "abc"]
    assert {*sides} == {True, False}
    run(folder, tmp_path / "checkpoint.pt", monkeypatch, "--label", "label", "--held-out", "0.7")
    said = capsys.readouterr().out
    assert f"2 classes, {3 - sum(sides)} videos for training, {sum(sides)} for validation" in said
    assert "accuracy nan" not in said
