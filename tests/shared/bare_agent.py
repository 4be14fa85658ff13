"""What stands for an agent of a Ray node: it waits for the end of the node, and ends.

For the agent of the dashboard it says what Ray's own one says where Ray was installed without extras, that there is
none of its services. For the one that prepares environments of tasks it names a port at which nobody listens: jobs have
no such environments.

It needs nothing but Python, so that it starts at once: `python -SE bare_agent.py COMMAND OF THE AGENT`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_OF_DASHBOARD = {"metrics_agent_port": -1, "metrics_export_port": -1, "dashboard_agent_listen_port": -1}
_OF_ENVIRONMENTS = {"runtime_env_agent_port": 1}


def main() -> None:
    """Write the files from which the node learns the agent's ports."""
    node = os.getppid()
    options = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
    ports = _OF_ENVIRONMENTS if "runtime-env-dir" in options else _OF_DASHBOARD
    for name, port in ports.items():
        file = Path(options["session-dir"], f"{name}_{options['node-id']}")
        part = file.with_suffix(".part")
        part.write_text(str(port), encoding="ascii")
        part.rename(file)
    # A node that is killed ends no agent.
    while os.getppid() == node:
        time.sleep(0.5)


if __name__ == "__main__":
    main()
