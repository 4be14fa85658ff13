"""Scans of one process, such as one of a thread that was given up, do not disturb each other."""

from __future__ import annotations

from typing import Any

import pytest

from shortgop.prep.kept_frames import scan as scans
from shortgop.prep.kept_frames.scanned import Scan
from synthetic import SyntheticVideo


def test_a_scan_in_the_middle_of_another_takes_no_frame_from_it(
    constant_video: SyntheticVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyAV finds what is attached to a packet by its address: small integers of the other scan have the same."""
    path, decode = str(constant_video.path), scans._Scanner._decode
    expected = scans.scan(path, 0)
    others: list[Scan] = []

    def decode_beside_another(scanner: Any, packet: Any) -> str:
        if len(scanner._packets) == 50:
            with monkeypatch.context() as patched:
                patched.setattr(scans._Scanner, "_decode", decode)
                others.append(scans.scan(path, 0))
        return decode(scanner, packet)

    monkeypatch.setattr(scans._Scanner, "_decode", decode_beside_another)
    assert scans.scan(path, 0) == expected
    assert others == [expected]
    assert len(expected.shown) == 100
