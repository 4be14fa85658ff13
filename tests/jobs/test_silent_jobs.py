"""Jobs of which nothing was heard for a while: whether they may be dead."""

from __future__ import annotations

import dataclasses

from shortgop.cli.status_command import status_lines
from shortgop.jobs.progress.job_status import JobStatus
from shortgop.jobs.progress.status_board import StatusBoard


def test_a_job_that_was_not_heard_of_for_a_minute_may_be_dead() -> None:
    found = JobStatus("host", 7, started=0, written=600, frames_done=600, frames_planned=1200, sources_total=2)
    lines = status_lines(found, now=605)
    assert lines[0] == "process 7 on host, running for 10 min, heard of 5 s ago"
    assert lines[2] == "600 of 1200 frames, 1 frames/s while encoding (0 in the last minute), about 10 min left"
    assert status_lines(found, now=700)[0].endswith(
        "it may be dead, unless clocks of machines differ; the same command goes on from there"
    )


def test_of_a_job_of_another_machine_it_cannot_be_seen_whether_its_process_lives() -> None:
    here = StatusBoard([]).status()
    assert not here.has_died
    gone = dataclasses.replace(here, process_started="before")
    assert gone.has_died
    assert not dataclasses.replace(gone, machine="another boot").has_died
    assert not dataclasses.replace(gone, machine="", process_started="").has_died
    assert not dataclasses.replace(gone, state="ended").has_died


def test_a_job_whose_clock_is_wrong_is_heard_of_by_the_clock_of_the_store() -> None:
    found = JobStatus("host", 7, started=0, written=600)
    # The job's clock is an hour behind, and then an hour ahead, of a job that lives and of one that died.
    assert status_lines(found, now=4205, changed=4200) == status_lines(found, now=605)
    assert "heard of 3 min 20 s ago: it may be dead" in status_lines(found, now=-2800, changed=-3000)[0]
    assert "heard of 1 h ago: it may be dead" in status_lines(found, now=4205, changed=605)[0]
    # The store's clock may be the one that is behind.
    assert "heard of 5 s ago" in status_lines(found, now=605, changed=-3000)[0]
