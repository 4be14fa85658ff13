"""What most checks import. A process imports it before it is known which check it gets, while another check runs.

Nothing here may use CUDA: the GPU is the other check's. A torch with CUDA loads libcuda, and asks it nothing yet.
"""

from __future__ import annotations

import importlib
import importlib.util

import gpu_reader  # noqa: F401  # with torch, PyAV and the reader

if importlib.util.find_spec("triton"):
    importlib.import_module("shortgop.readers.gpu.triton_kernel")
