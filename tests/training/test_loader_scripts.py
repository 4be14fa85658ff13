"""Scripts whose loader cannot start its workers are told why, and what to change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

# Where the machine has nothing else to do, a script takes a few seconds.
SECONDS = 120

# As the newest versions of Python do: the fork server imports the script where that is among what it is to import.
OF_NEWER_PYTHON = """from multiprocessing import spawn
before = spawn.get_preparation_data
spawn.get_preparation_data = lambda name: (found := before(name)) | {"main_path": found["init_main_from_path"]}
"""


@pytest.mark.parametrize("python", ["", OF_NEWER_PYTHON], ids=["this", "newer"])
def test_a_script_without_a_guard_is_told_so(python: str, clips_folder: Path, tmp_path: Path) -> None:
    """With newer versions of Python it was EOFError after a minute."""
    script = tmp_path / "script.py"
    script.write_text(
        f"{python}import shortgop\n"
        f"dataset = shortgop.ClipDataset({str(clips_folder)!r}, shortgop.AllClips(2))\n"
        "print(next(iter(shortgop.ClipLoader(dataset, range(8), batch_size=4, workers=2))))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 1
    assert 'has to do so under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


def test_a_fork_server_that_cannot_start_names_what_it_imports(clips_folder: Path, tmp_path: Path) -> None:
    """It was EOFError after a minute."""
    (tmp_path / "raises.py").write_text("raise RuntimeError('no such device')")
    program = (
        "import multiprocessing, shortgop\n"
        "multiprocessing.set_forkserver_preload(['raises'])\n"
        f"dataset = shortgop.ClipDataset({str(clips_folder)!r}, shortgop.AllClips(2))\n"
        "next(iter(shortgop.ClipLoader(dataset, range(8), batch_size=4, workers=1)))\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 1
    assert "it imports raises, as multiprocessing.set_forkserver_preload says" in done.stderr.splitlines()[-1]
    assert "no such device" in done.stderr
