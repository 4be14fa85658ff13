"""Train a small 3D network to classify two kinds of motion: python examples/train_classifier.py

A single frame does not show the motion, so the accuracy shows that labels, clips and the order of frames are right.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn

import shortgop
from moving_dots import make_dataset


def network() -> nn.Module:
    def stage(channels: int, filters: int, stride: tuple[int, int, int]) -> list[nn.Module]:
        convolution = nn.Conv3d(channels, filters, 3, stride=stride, padding=1)
        return [convolution, nn.BatchNorm3d(filters), nn.ReLU()]

    return nn.Sequential(
        *stage(1, 8, (1, 2, 2)),
        *stage(8, 16, (1, 2, 2)),
        *stage(16, 16, (2, 2, 2)),
        nn.AdaptiveMaxPool3d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    )


def prepared(frames: torch.Tensor) -> torch.Tensor:
    """One channel, channels before time, values around 0: (frames, 3, height, width) to (1, frames, height, width)."""
    return frames[:, :1].transpose(0, 1).float() / 128 - 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=1, help="processes that read ahead; 0 for none")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = make_dataset(Path(folder), count=64)
        videos = range(64)
        training = shortgop.ClipDataset(
            path,
            shortgop.RandomClips(8, stride=2, clips_per_video=4),
            videos=videos[:52],
            metadata=["label"],
            transform=prepared,
            size=(32, 32),
        )
        validation = shortgop.ClipDataset(
            path,
            shortgop.UniformClips(8, stride=2, clips_per_video=4),
            videos=videos[52:],
            metadata=["label"],
            transform=prepared,
            size=(32, 32),
        )
        sampler = shortgop.ElasticSampler(training, global_batch_size=16)
        loader = shortgop.ClipLoader(training, sampler, workers=arguments.workers)
        in_order = shortgop.ElasticSampler(validation, 16, order=shortgop.Sequential(), drop_last=False)
        held_out = shortgop.ClipLoader(validation, in_order, workers=arguments.workers)
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs * len(loader))
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            model.train()
            for batch in loader:
                loss = nn.functional.cross_entropy(model(batch["frames"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy(model, held_out):.3f}")
        print(loader.stats().advice)


@torch.no_grad()
def accuracy(model: nn.Module, loader: shortgop.ClipLoader) -> float:
    """The share of all clips that the model classifies correctly."""
    model.eval()
    right = [(model(batch["frames"]).argmax(dim=1) == batch["label"]).float() for batch in loader]
    return float(torch.cat(right).mean())


if __name__ == "__main__":
    main()
