# One image for every machine of a job: a laptop, the nodes of a Ray cluster, the pods of KubeRay, and those who read.
#   docker build --target cpu -t shortgop:cpu .      2 GB, PyTorch without CUDA
#   docker build --target cuda -t shortgop:cuda .    with CUDA from PyTorch's own packages; the host has NVIDIA's driver
# docs/cluster.md says how they are used.
# 3.11.14, the same for all nodes: Ray refuses to join nodes of different Python versions.
ARG BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${BASE} AS base
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PATH=/opt/shortgop/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RAY_USAGE_STATS_ENABLED=0
# `ray up` brings files into containers with rsync; KubeRay asks older releases of Ray for their health with wget.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends rsync wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home --shell /bin/bash shortgop \
    && install --directory --owner shortgop /scratch

FROM base AS build
RUN python3 -m venv /opt/shortgop
WORKDIR /src
COPY . .

FROM build AS build-cpu
# PyTorch's own index has builds without CUDA. Empty: whatever pip's own settings find.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt torch \
    && pip install --no-cache-dir -c constraints.txt '.[cluster,s3]' \
    && bash scripts/trim_environment.sh /opt/shortgop

FROM build AS build-cuda
RUN pip install --no-cache-dir -c constraints.txt '.[cluster,s3]' \
    && bash scripts/trim_environment.sh /opt/shortgop

FROM base AS run
# Sources from stores lie in /scratch while they are encoded: mount a disk, at least the largest source for each core.
# Without RAY_TMPDIR Ray would keep its logs there, too.
ENV TMPDIR=/scratch \
    RAY_TMPDIR=/tmp
USER 1000
WORKDIR /home/shortgop
# No ENTRYPOINT: `ray up` and KubeRay start their own commands in the image.
HEALTHCHECK --interval=5m --timeout=1m --start-period=1m CMD ["shortgop", "doctor"]
CMD ["shortgop", "--help"]

FROM run AS cuda
# Of these, `video` brings NVDEC and NVENC into the container: `docker run --gpus all`.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
USER 0
# Triton compiles with it the kernel that converts frames.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER 1000
COPY --from=build-cuda /opt/shortgop /opt/shortgop

FROM run AS cpu
COPY --from=build-cpu /opt/shortgop /opt/shortgop
