"""Run the command line, killed by SIGKILL before one of its changes to a dataset, in a folder or in a store.

    python killed_command.py DATASET CHANGE COMMAND...

Without a change of that number the command ends by itself. Then the last line on standard error is how many there were.
"""

import os
import sys

from killed_steps import kill_at
from shortgop.cli import app


def main() -> None:
    dataset, change, *command = sys.argv[1:]
    count = kill_at(int(change), dataset)
    status = 0
    try:
        app(command)
    except SystemExit as error:
        status = int(error.code or 0)
    print(count(), file=sys.stderr)  # what the caller reads
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
