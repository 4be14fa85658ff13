"""Train a small network to double the size of frames: python examples/super_resolution.py

Its input is three small frames, its target the frame in the middle at full size: one decode makes both, with the same
random crop and flip. On videos that were not used for training it does better than bicubic interpolation of the same
input, by its peak signal-to-noise ratio (PSNR). It could not if input and target showed different parts or frames.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

import shortgop
from moving_boxes import make_dataset

INPUT, TARGET = (32, 32), (64, 64)  # height and width in pixels


class Network(nn.Module):
    """From (batch, 3 frames, 3, height, width) to the frame in the middle, (batch, 3, 2 * height, 2 * width)."""

    def __init__(self, filters: int = 32) -> None:
        super().__init__()
        last = nn.Conv2d(filters, 3 * 2 * 2, 3, padding=1)
        # So that training starts from bicubic interpolation.
        for parameter in last.parameters():
            nn.init.zeros_(parameter)
        self.details = nn.Sequential(
            nn.Conv2d(3 * 3, filters, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3, padding=1),
            nn.ReLU(),
            last,
            nn.PixelShuffle(2),
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        details: torch.Tensor = self.details(frames.flatten(1, 2) - 0.5)
        return bicubic(frames) + details


def bicubic(frames: torch.Tensor) -> torch.Tensor:
    """The frame in the middle, twice as large by bicubic interpolation."""
    return nn.functional.interpolate(frames[:, 1], scale_factor=2, mode="bicubic")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    outputs = {
        "input": shortgop.Output(size=INPUT, shared="target", dtype=torch.float32),
        "target": shortgop.Output(size=TARGET, crop="random", flip=0.5, frames=[1], dtype=torch.float32),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = make_dataset(Path(folder), count=32)
        training = shortgop.ClipDataset(
            path, shortgop.RandomClips(3, clips_per_video=8), outputs=outputs, videos=range(24)
        )
        validation = shortgop.ClipDataset(
            path, shortgop.UniformClips(3, clips_per_video=8), outputs=outputs, videos=range(24, 32)
        )
        sampler = shortgop.ElasticSampler(training, global_batch_size=16)
        loader = DataLoader(training, batch_size=16, sampler=sampler, num_workers=arguments.workers)
        model = Network()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs * len(loader))
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                loss = nn.functional.mse_loss(model(batch["input"]), batch["target"][:, 0])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
            print(f"epoch {epoch}: loss {loss.item():.5f}", flush=True)
        of_network, of_bicubic = psnrs(model, validation)
        print(f"PSNR on other videos: network {of_network:.2f} dB, bicubic {of_bicubic:.2f} dB")


@torch.no_grad()
def psnrs(model: nn.Module, dataset: shortgop.ClipDataset) -> tuple[float, float]:
    """The PSNR of the network and of bicubic interpolation over all pixels of a dataset, in dB."""
    squares = torch.zeros(2, dtype=torch.float64)
    count = 0
    for batch in DataLoader(dataset, batch_size=16):
        target = batch["target"][:, 0]
        count += target.numel()
        for place, guess in enumerate((model(batch["input"]), bicubic(batch["input"]))):
            squares[place] += (guess.clamp(0, 1) - target).square().sum()
    of_network, of_bicubic = (-10 * torch.log10(squares / count)).tolist()
    return of_network, of_bicubic


if __name__ == "__main__":
    main()
