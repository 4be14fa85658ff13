"""Train a classifier on a dataset of your own:

    python examples/train_on_labels.py DATASET --label COLUMN --checkpoint FILE

The classes are the values of a column of the source list, texts or numbers. Stop it at any time, also in the middle of
an epoch: the same command goes on from the last checkpoint, with any number of workers, and comes to the same weights.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import shortgop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="what `shortgop prep list.csv --out DATASET` made")
    parser.add_argument("--label", default="label", help="a column of the list")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--every", type=int, default=50, help="steps from one checkpoint to the next")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--frames", type=int, default=16, help="frames of a clip")
    parser.add_argument("--fps", default="8", help="frames of a clip in a second, such as 8 or 30000/1001")
    parser.add_argument("--side", type=int, default=112, help="height and width in pixels")
    parser.add_argument("--clips-per-video", type=int, default=1, help="clips of each video in an epoch")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--held-out", type=float, default=0.1, help="the part of all files that is for validation")
    parser.add_argument("--workers", type=int, default=1, help="processes that read ahead; 0 for none")
    train(parser.parse_args())


def train(arguments: argparse.Namespace) -> None:
    label = arguments.label
    videos = shortgop.open(
        arguments.dataset, size=(arguments.side, arguments.side), crop="center", dtype=torch.float32,
        normalize=((0.45, 0.45, 0.45), (0.225, 0.225, 0.225)),
    ).where(lambda columns: columns.present(label))  # fmt: skip
    # The same numbers in every run, and for training and validation.
    number_of = {value: number for number, value in enumerate(sorted(set(videos.columns[label].tolist())))}
    held_out = np.array([is_held_out(source, arguments.held_out) for source in videos.columns["source"]], dtype=bool)
    print(f"{len(number_of)} classes, {np.sum(~held_out)} videos for training, {np.sum(held_out)} for validation")

    policy = shortgop.RandomClips(
        arguments.frames, fps=arguments.fps, clips_per_video=arguments.clips_per_video, ends="repeat_last"
    )
    training = shortgop.ClipDataset(videos[~held_out], policy, metadata=[label])
    sampler = shortgop.ElasticSampler(training, arguments.batch_size)
    loader = shortgop.ClipLoader(training, sampler, workers=arguments.workers)
    torch.manual_seed(0)
    model = network(len(number_of))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if arguments.checkpoint.exists():
        saved = torch.load(arguments.checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    for epoch in range(sampler.epoch, arguments.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for step, batch in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(batch["frames"]), targets(batch[label], number_of))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step % arguments.every == 0:
                save(arguments.checkpoint, model, optimizer, batch.state)
        save(arguments.checkpoint, model, optimizer, loader.state_dict())
        right = accuracy(model, videos[held_out], number_of, arguments) if held_out.any() else float("nan")
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right:.3f}", flush=True)
    print(loader.stats().advice)


def is_held_out(source: str, part: float) -> bool:
    """Whether a file is for validation: by a hash of its name, which stays the same while the dataset grows. Stretches
    of one file stay together."""
    return hashlib.blake2b(source.rsplit("/", maxsplit=1)[-1].encode()).digest()[0] < 256 * part


def network(classes: int) -> nn.Module:
    """From (batch, frames, 3, height, width) to scores of the classes. Any such model takes its place."""

    class ChannelsFirst(nn.Module):
        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            return frames.transpose(1, 2)

    def stage(channels: int, filters: int) -> list[nn.Module]:
        convolution = nn.Conv3d(channels, filters, 3, stride=(1, 2, 2), padding=1)
        return [convolution, nn.GroupNorm(4, filters), nn.ReLU()]

    stages = [*stage(3, 16), *stage(16, 32), *stage(32, 64)]
    return nn.Sequential(ChannelsFirst(), *stages, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, classes))


def targets(values: Any, number_of: dict[Any, int]) -> torch.Tensor:
    """The numbers of the classes of a batch, whose labels are a tensor or a list of texts."""
    listed = values.tolist() if isinstance(values, torch.Tensor) else values
    return torch.tensor([number_of[value] for value in listed])


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Write a checkpoint, in place of the last one as soon as it is complete."""
    written = path.with_suffix(".part")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": state}, written)
    written.replace(path)


@torch.no_grad()
def accuracy(
    model: nn.Module, videos: shortgop.Dataset, number_of: dict[Any, int], arguments: argparse.Namespace
) -> float:
    """The share of videos that the model classifies correctly, by what it says of three clips of each."""
    model.eval()
    policy = shortgop.UniformClips(arguments.frames, fps=arguments.fps, clips_per_video=3, ends="repeat_last")
    clips = shortgop.ClipDataset(videos, policy, metadata=[arguments.label])
    in_order = shortgop.ElasticSampler(clips, arguments.batch_size, order=shortgop.Sequential(), drop_last=False)
    scores, wanted = torch.zeros(len(videos), len(number_of)), torch.zeros(len(videos), dtype=torch.int64)
    for batch in shortgop.ClipLoader(clips, in_order, workers=arguments.workers):
        scores.index_add_(0, batch["video"], model(batch["frames"]).softmax(dim=1))
        wanted[batch["video"]] = targets(batch[arguments.label], number_of)
    return float((scores.argmax(dim=1) == wanted).float().mean())


if __name__ == "__main__":
    main()
