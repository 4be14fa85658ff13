"""Trials that fail because others have a GPU's sessions or its memory say nothing of what it can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.running.processes import Finished
from shortgop.prep.tools import capability_trials
from shortgop.prep.tools.capabilities import Capabilities
from shortgop.prep.tools.capability_trials import capabilities_of

REFUSED = b"[h264_nvenc @ 0x1] OpenEncodeSessionEx failed: out of memory (10): (no details)\nNo capable devices found"


class Sessions:
    """NVENC of a GPU that encodes B-frames, whose next sessions are refused: `left` of them."""

    def __init__(self) -> None:
        self.left = self.asked = 0

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float) -> Finished:
        if "h264_nvenc" not in argv:
            return Finished(0, b"a sample", b"")
        self.asked += 1
        self.left -= 1
        return Finished(1, b"", REFUSED) if self.left >= 0 else Finished(0, b"", b"")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    found = Sessions()
    monkeypatch.setattr(capability_trials, "run_trial", found.run)
    monkeypatch.setattr(capability_trials, "_PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(capability_trials, "_known", {})
    for cached in (capability_trials._tried_on_cpu, capability_trials._sample):
        cached.cache_clear()
    yield found
    for cached in (capability_trials._tried_on_cpu, capability_trials._sample):
        cached.cache_clear()


def found() -> Capabilities:
    return capabilities_of(find_ffmpeg().path, Profile())


def test_a_trial_waits_for_a_session_twice(sessions: Sessions) -> None:
    sessions.left = 2
    assert found().runs("h264_nvenc")


def test_then_it_is_made_again_when_next_asked_and_nothing_is_concluded_of_b_frames(sessions: Sessions) -> None:
    sessions.left = 3
    refused = found()
    assert not refused.runs("h264_nvenc")
    assert "h264_nvenc without B-frames" not in {trial.name for trial in refused.trials}
    assert found().runs("h264_nvenc")
    asked = sessions.asked
    assert found().runs("h264_nvenc")
    assert sessions.asked == asked
