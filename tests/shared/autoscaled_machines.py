"""Machines that Ray's autoscaler starts and ends: processes on this one. The cluster's file names this module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class Machines(FakeMultiNodeProvider):
    """Ray's provider for tests, for machines whose memory the cluster's file says, as that of a cloud is known."""

    def _create_node_with_resources_and_labels(  # as Ray calls it
        self, node_config: Any, tags: Any, count: int, resources: Mapping[str, float], labels: Any
    ) -> None:
        # As a resource of a name of its own Ray refuses it.
        others = {name: value for name, value in resources.items() if name != "memory"}
        super()._create_node_with_resources_and_labels(  # type: ignore[no-untyped-call]
            node_config, tags, count, others, labels
        )
