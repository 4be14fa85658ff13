#!/bin/bash
# Removes from a virtual environment what nothing in an image runs: PyTorch's own tests, headers and test programs,
# and the Java side of Ray. The Dockerfile calls it.
set -euo pipefail
cd "$1"/lib/python3*/site-packages
rm -rf torch/test torch/include ray/jars
# Shares tensors between processes; the others are tests.
find torch/bin -type f ! -name torch_shm_manager -delete
