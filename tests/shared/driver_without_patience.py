"""The driver of a chaos case that waits three asks for word of a step, not a minute:
python tests/shared/driver_without_patience.py SOURCES DATASET ADDRESS"""

from __future__ import annotations

import sys

import cluster_chaos
from shortgop.jobs.working import unheard

if __name__ == "__main__":
    unheard.MOST_ASKS = 2
    cluster_chaos.job(*sys.argv[1:])
