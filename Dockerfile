# To use a GPU: `docker run --gpus all ...` on a host with NVIDIA's container toolkit. Of the capabilities
# below, `video` brings NVDEC and NVENC into the container.
# Ray keeps its object store in shared memory: `docker run --shm-size=2g ...`.
FROM python:3.11-slim

ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video

COPY . /src
RUN pip install --no-cache-dir -c /src/constraints.txt '/src[prep]'

RUN useradd --create-home shortgop
USER shortgop
WORKDIR /home/shortgop
ENTRYPOINT ["shortgop"]
