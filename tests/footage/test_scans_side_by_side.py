"""Scans of one process, such as one of a thread that was given up, do not disturb each other."""

from __future__ import annotations

from typing import Any

import pytest

from shortgop.prep.kept_frames.scan import scan
from shortgop.prep.kept_frames.scanned import Scan
from shortgop.prep.kept_frames.scanner import Scanner
from synthetic import SyntheticVideo


def test_a_scan_in_the_middle_of_another_takes_no_frame_from_it(
    constant_video: SyntheticVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyAV finds what is attached to a packet by its address: small integers of the other scan have the same."""
    path, decode = str(constant_video.path), Scanner._decode
    expected = scan(path, 0)
    others: list[Scan] = []

    def decode_beside_another(scanner: Scanner, packet: Any) -> str:
        if len(scanner._seen.packets) == 50:
            with monkeypatch.context() as patched:
                patched.setattr(Scanner, "_decode", decode)
                others.append(scan(path, 0))
        return decode(scanner, packet)

    monkeypatch.setattr(Scanner, "_decode", decode_beside_another)
    assert scan(path, 0) == expected
    assert others == [expected]
    assert len(expected.shown) == 100
