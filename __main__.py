"""`python -m shortgop`, and the `shortgop` command."""

from __future__ import annotations

import sys

_EXIT_INTERRUPTED = 130


def main() -> None:
    try:
        from .cli import app, tell_warnings_plainly
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"the shortgop command needs {error.name}: pip install 'shortgop[prep]'")
    except KeyboardInterrupt:
        # What commands say of Ctrl-C is not imported yet.
        sys.exit(_EXIT_INTERRUPTED)
    tell_warnings_plainly()
    app()


if __name__ == "__main__":
    main()
