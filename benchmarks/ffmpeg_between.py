#!/usr/bin/env python3
"""Stands in SHORTGOP_FFMPEG between prep and ffmpeg: writes down what prep runs, or changes how x264 encodes.

BETWEEN_FFMPEG is the ffmpeg to run. With BETWEEN_RECORD every command line is appended to that file, as a line of JSON.
BETWEEN_X264 is added to x264's parameters, and BETWEEN_CRF replaces its quality level, which may then be a fraction.
"""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path


def changed(argv: list[str], x264: str, crf: str) -> list[str]:
    """The arguments with x264's changed, where there are any."""
    out = list(argv)
    for place, (option, value) in enumerate(pairwise(argv), start=1):
        if option == "-x264-params" and x264:
            out[place] = f"{value}:{x264}"
        if option == "-crf" and crf:
            out[place] = crf
    return out


def main() -> None:
    arguments = changed(sys.argv[1:], os.environ.get("BETWEEN_X264", ""), os.environ.get("BETWEEN_CRF", ""))
    if record := os.environ.get("BETWEEN_RECORD"):
        with Path(record).open("a", encoding="utf-8") as file:
            file.write(json.dumps(arguments) + "\n")
    program = os.environ["BETWEEN_FFMPEG"]
    os.execv(program, [program, *arguments])  # noqa: S606  # what prep would have run


if __name__ == "__main__":
    main()
