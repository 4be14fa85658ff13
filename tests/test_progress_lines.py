"""What a job says of itself in a log while it runs."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from shortgop.cli.progress import job_progress
from shortgop.jobs.tally import Progress


def test_the_start_of_ray_counts_neither_in_the_rate_nor_in_the_time_that_is_left() -> None:
    text = StringIO()
    with job_progress(Console(file=text, force_terminal=False)) as show:
        for seconds, note in ((1.0, "looking"), (2.0, "starting Ray"), (14.0, "encoding"), (20.0, "encoding")):
            show(Progress(0, 4, 0, 0, 1000, 0, seconds, note, 4))
        show(Progress(1, 4, 0, 300, 1000, 0, 30.0, "publishing", 4))
    assert text.getvalue().splitlines()[-1] == "300/1000 frames, 23 s left, 30 frames/s, 1/4 videos; publishing"


def test_the_first_frames_are_no_rate_of_thousands() -> None:
    text = StringIO()
    with job_progress(Console(file=text, force_terminal=False)) as show:
        show(Progress(0, 4, 0, 0, 1000, 0, 20.0, "starting Ray", 4))
        show(Progress(0, 4, 0, 16, 1000, 0, 20.1, "encoding", 4))
    assert "8 frames/s" in text.getvalue().splitlines()[-1]
