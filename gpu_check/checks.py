"""The checks, most telling first: what each one answers, and how long it may take."""

from __future__ import annotations

from check_report import Check

ENVIRONMENT = "environment"

CHECKS = (
    Check(
        ENVIRONMENT, "which GPU, driver, libraries, devices and capabilities are here?", "gpu_environment:report", 40
    ),
    Check(
        "nvdec-caps", "what does this GPU decode, in which sizes, on how many engines?", "gpu_capabilities:nvdec", 20
    ),
)
