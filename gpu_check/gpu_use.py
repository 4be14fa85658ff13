"""What nvidia-smi says of the use of a GPU's engines and memory while something is measured."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from gpu_environment import output_of

_ENGINES = ("utilization.gpu", "utilization.encoder", "utilization.decoder", "memory.used")
_LOOK_SECONDS = 0.25


@contextmanager
def engines() -> Iterator[list[dict[str, float]]]:
    """What nvidia-smi says of the GPU's use, again and again while the context lasts."""
    found: list[dict[str, float]] = []
    over = threading.Event()

    def look() -> None:
        argv = ["nvidia-smi", f"--query-gpu={','.join(_ENGINES)}", "--format=csv,noheader,nounits"]
        while not over.wait(_LOOK_SECONDS):
            if not (output := output_of(argv)):
                return
            found.extend(use_of(output))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        # One that hangs is not waited for: the next measurement needs the time.
        thread.join(2)


def use_of(output: str) -> list[dict[str, float]]:
    """The rows that nvidia-smi printed; what a GPU does not report is left out."""
    rows = []
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(_ENGINES):
            numbers = {
                name: cell for name, cell in zip(_ENGINES, cells, strict=True) if cell.replace(".", "").isdigit()
            }
            rows.append({name: float(cell) for name, cell in numbers.items()})
    return rows


def most_of(use: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The greatest value of each: percent of the GPU's time, and MiB."""
    return {name: max(row[name] for row in use if name in row) for name in _ENGINES if any(name in row for row in use)}
