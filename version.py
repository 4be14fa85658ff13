"""Which shortgop this is. The nodes of a cluster compare it, so it imports nothing."""

__version__ = "0.1.0"
