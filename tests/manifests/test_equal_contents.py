"""Videos of one identity, found block by block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_manifests import video
from shortgop.manifests import equal_contents
from shortgop.manifests.merging.merge import merge

IDENTITIES = st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 1])


@given(st.lists(IDENTITIES, max_size=9), st.lists(IDENTITIES, max_size=4), st.integers(1, 4))
def test_the_rows_of_some_identities(there: list[int], wanted: list[int], compared: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equal_contents, "_COMPARED_ROWS", compared)
        rows = equal_contents.rows_of_identities(np.array(there, "<u8"), np.array(wanted, "<u8"))
    assert rows.tolist() == [row for row, each in enumerate(there) if each in wanted]


@given(st.lists(IDENTITIES, max_size=16), st.integers(1, 4))
def test_which_videos_have_the_content_of_an_earlier_one(there: list[int], compared: int) -> None:
    ids = [f"{row:02}" for row in range(len(there))]
    manifest = merge([video(each, offset=10_000 * row) for row, each in enumerate(ids)])
    manifest = replace(manifest, videos=replace(manifest.videos, identity=np.array(there, "<u8")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equal_contents, "_COMPARED_ROWS", compared)
        found = equal_contents.equal_contents(manifest)
    pairs = [(ids[there.index(each)], ids[row]) for row, each in enumerate(there) if each and there.index(each) < row]
    assert (found.videos, list(found.pairs)) == (len(pairs), pairs[:10])
