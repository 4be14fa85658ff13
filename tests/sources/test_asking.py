"""Questions to the head of Ray: who asks waits for a head that is slow, and not for one that is gone."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from ray.exceptions import WorkerCrashedError

import shortgop
from shortgop.jobs.cluster import asking
from shortgop.jobs.cluster.asking import NoAnswerError, PatientQuestion, head_patience_seconds


class Head:
    """Answers with the number of the question, once it `may_answer`."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.questions = 0
        self.is_broken = False

    def ask(self) -> int:
        self.questions += 1
        number = self.questions
        self.may_answer.wait()
        if self.is_broken:
            raise WorkerCrashedError
        return number


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    monkeypatch.setattr(asking, "_ANSWER_SECONDS", 0.05)
    head = Head()
    head.may_answer.set()
    return head


def test_each_call_asks_anew(head: Head) -> None:
    ask = PatientQuestion(head.ask, 60)
    assert [ask(), ask(), ask()] == [1, 2, 3]


def test_the_first_answer_may_take_long(head: Head) -> None:
    head.may_answer.clear()
    threading.Timer(0.3, head.may_answer.set).start()
    assert PatientQuestion(head.ask, 60)() == 1


def test_a_head_that_does_not_answer_is_asked_once_and_its_answer_counts_later(head: Head) -> None:
    ask = PatientQuestion(head.ask, 60)
    assert ask() == 1
    head.may_answer.clear()
    for _ in range(3):
        with pytest.raises(NoAnswerError, match="the head of Ray does not answer"):
            ask()
    assert head.questions == 2
    head.may_answer.set()
    assert [ask(), ask()] == [2, 3]


def test_an_error_of_ray_is_no_answer(head: Head) -> None:
    ask = PatientQuestion(head.ask, 60)
    ask()
    head.is_broken = True
    for _ in range(2):
        with pytest.raises(NoAnswerError):
            ask()
    head.is_broken = False
    assert ask() == 4


def test_an_error_in_place_of_the_first_answer_is_raised(head: Head) -> None:
    """Nothing was waited for, and the error says more."""
    head.is_broken = True
    with pytest.raises(WorkerCrashedError):
        PatientQuestion(head.ask, 60)()


def test_any_other_error_is_raised(head: Head) -> None:
    def ask_badly() -> int:
        return head.ask() // 0

    ask = PatientQuestion(ask_badly, 60)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            ask()


@pytest.mark.parametrize("is_broken", [False, True], ids=["silent", "errors"])
def test_a_head_that_is_gone_for_long_ends_the_job(head: Head, is_broken: bool) -> None:
    ask = PatientQuestion(head.ask, 0.5)
    ask()
    head.is_broken = is_broken
    if not is_broken:
        head.may_answer.clear()
    began = time.monotonic()

    def ask_until_it_is_over() -> None:
        while time.monotonic() - began < 30:
            with contextlib.suppress(NoAnswerError):
                ask()
            time.sleep(0.02)

    with pytest.raises(shortgop.ToolError, match="has not answered for 0 s; what is finished is kept, so run the same"):
        ask_until_it_is_over()
    assert time.monotonic() - began >= 0.5
    head.may_answer.set()


def test_a_head_that_never_answered_ends_the_job(head: Head) -> None:
    head.may_answer.clear()
    with pytest.raises(shortgop.ToolError, match="the head of Ray has not answered"):
        PatientQuestion(head.ask, 0.1)()
    head.may_answer.set()


def test_the_job_ends_before_ray_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_gcs_rpc_server_reconnect_timeout_s", raising=False)
    assert head_patience_seconds() == 45
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "300")
    assert head_patience_seconds() == 285
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
    assert head_patience_seconds() == 5
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "long")
    assert head_patience_seconds() == 45
