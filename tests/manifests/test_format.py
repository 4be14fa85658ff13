"""A second reader, from docs/format.md alone: nothing in `Reader` is shortgop's. If it works, the page is complete."""

import json
import struct
import warnings
import zlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import zarr
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.reformatter import ColorRange

import shortgop
from datasets import make_dataset
from shortgop.manifests.layering import layers
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.drop import drop
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, frame_to_rgb, make_video, read_number

ROOT = Path(__file__).parents[2]


class Reader:
    """Reads frames of a dataset, one at a time."""

    def __init__(self, dataset: Path) -> None:
        attributes = json.loads((dataset / "zarr.json").read_text())["attributes"]["shortgop"]
        assert attributes["format_version"] in {4, 5}
        self.dataset = dataset
        self.root: Any = self.opened(attributes["snapshot"])
        names = self.root["layers"].attrs["shortgop"]["snapshots"] if "layers" in self.root else []
        # The layer and the row of each video that counts. Layers are looked at from the newest on.
        self.places: dict[str, tuple[Any, int]] = {}
        seen: set[str] = set()
        for layer in [self.root, *map(self.opened, reversed(names))]:
            self.root = layer
            own = self.texts("videos/id")
            self.places |= {name: (layer, row) for row, name in enumerate(own) if name not in seen}
            seen.update(own, *(self.texts(f"{table}/id") for table in ("failures", "edits", "drops")))

    def opened(self, snapshot: str) -> Any:
        store = zarr.storage.ZipStore(self.dataset / "manifest" / f"{snapshot}.zip", mode="r")
        return zarr.open_group(store, mode="r")

    def texts(self, path: str) -> list[str]:
        rows = len(self.column(f"{path}_offsets")) - 1
        return [bytes(self.ragged(path, row)).decode() for row in range(rows)]

    def column(self, path: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr has doubts about delta
            return self.root[path][:]

    def ragged(self, path: str, row: int) -> Any:
        offsets = self.column(f"{path}_offsets")
        return self.column(path)[offsets[row] : offsets[row + 1]]

    def ids(self) -> list[str]:
        return sorted(self.places, key=str.encode)

    def frame(self, video_id: str, k: int) -> tuple[av.VideoFrame, int]:
        """Frame k of a video, and the pts of the source frame that it shows."""
        self.root, video = self.places[video_id]
        num_frames, gop_frames = self.column("videos/num_frames"), self.column("videos/gop_frames")
        segment_gops = self.column("videos/segment_gops")
        gops_of = -(-num_frames // gop_frames)
        segments_of = -(-gops_of // segment_gops)
        g = k // gop_frames[video]
        gop = gops_of[:video].sum() + g
        segment = segments_of[:video].sum() + g // segment_gops[video]
        source_pts = self.column("timeline/pts")[num_frames[:video].sum() + k]

        shard = bytes(self.ragged("shards/name", self.column("segments/shard")[segment])).decode()
        start, length = self.column("gops/offset")[gop], self.column("gops/length")[gop]
        data = (self.dataset / "shards" / shard).read_bytes()[start : start + length]
        assert zlib.crc32(data) == self.column("gops/crc32")[gop]

        pattern = self.column("gops/pattern")[gop]
        shown, referenced = self.ragged("patterns/frames", pattern), self.ragged("patterns/referenced", pattern)
        wanted = shown.tolist().index(k % gop_frames[video])
        fed = [i for i in range(wanted + 1) if referenced[i] or i == wanted]
        samples = list(self.samples(data))
        assert len(samples) == len(shown)

        config = self.column("videos/config")[video]
        codec = bytes(self.ragged("configs/codec", config)).decode()
        decoder: Any = CodecContext.create({"av1": "libdav1d"}.get(codec, codec), "r")
        decoder.extradata = bytes(self.ragged("configs/extradata", config))
        frames = [frame for i in fed for frame in decoder.decode(Packet(samples[i]))] + decoder.decode(None)
        # What comes out is sorted by presentation.
        return frames[sorted(shown[i] for i in fed).index(shown[wanted])], int(source_pts)

    @staticmethod
    def samples(data: bytes) -> Iterator[bytes]:
        """Cut the GOP as its trun box says."""
        at, sizes = data.index(b"trun") + 4, []
        flags, count = struct.unpack_from(">II", data, at)
        at += 8 + 4 * bool(flags & 0x1) + 4 * bool(flags & 0x4)
        fields = [flag for flag in (0x100, 0x200, 0x400, 0x800) if flags & flag]
        for sample in range(count):
            (size,) = struct.unpack_from(">I", data, at + 4 * (len(fields) * sample + fields.index(0x200)))
            sizes.append(size)
        at = struct.unpack_from(">I", data)[0] + 8
        for size in sizes:
            yield data[at : at + size]
            at += size


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_a_reader_that_follows_the_page_finds_every_frame(
    codec: str, variable_video: SyntheticVideo, tmp_path: Path
) -> None:
    rate = Fraction(25)
    other = make_video(tmp_path / "other.mp4", pts=constant_rate_pts(rate, 70), timebase=1 / rate, first_number=500)
    make_dataset([variable_video.path, other.path], tmp_path / "dataset", codec=codec, segment_seconds=Fraction(1))
    reader = Reader(tmp_path / "dataset")
    assert reader.ids() == ["other.mp4", "variable.mp4"]
    for name, source in (("other.mp4", other), ("variable.mp4", variable_video)):
        for k in [*range(0, 70, 9), 69]:
            frame, source_pts = reader.frame(name, k)
            assert read_number(frame_to_rgb(frame)) == source.numbers[source.pts.index(source_pts)]


@pytest.mark.parametrize(("matrix", "full_range"), [(1, False), (1, True), (6, False), (5, True), (2, False)])
def test_a_reader_that_converts_as_the_page_says_gets_shortgops_pixels(
    tmp_path: Path, matrix: int, full_range: bool
) -> None:
    with av.open(tmp_path / "a.mp4", "w") as container:
        stream: Any = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.codec_context.colorspace = matrix
        stream.codec_context.color_range = ColorRange.JPEG if full_range else ColorRange.MPEG
        rng = np.random.default_rng(0)
        for _ in range(20):
            # Blocks of random luma and chroma.
            picture = av.VideoFrame.from_ndarray(
                rng.integers(16, 236, (12, 12), np.uint8).repeat(8, axis=0).repeat(8, axis=1), format="yuv420p"
            )
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    make_dataset([tmp_path / "a.mp4"], tmp_path / "dataset")
    reader, video = Reader(tmp_path / "dataset"), shortgop.open(tmp_path / "dataset")["a.mp4"]
    for k in (0, 7, 19):
        frame = reader.frame("a.mp4", k)[0]
        assert frame.format.name == "yuv420p"
        pixels = frame.to_ndarray(format="rgb24")
        assert np.array_equal(video[k].permute(1, 2, 0).numpy(), pixels)
        # Pixels differ, so this can fail.
        assert len(np.unique(pixels)) > 100


def test_a_reader_that_follows_the_page_finds_what_layers_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Any two snapshots become layers.
    monkeypatch.setattr(layers, "layers_that_stay", lambda rows, _new, **_: len(rows))
    rate = Fraction(25)
    sources = [
        make_video(tmp_path / f"{name}.mp4", pts=constant_rate_pts(rate, 30), timebase=1 / rate, first_number=first)
        for name, first in (("a", 100), ("b", 200), ("c", 300))
    ]
    dataset = tmp_path / "dataset"
    for source in sources:
        make_dataset([source.path], dataset)
    annotate(DiskStorage(dataset), {"a.mp4": {"label": 1}})
    drop(DiskStorage(dataset), ["b.mp4"])
    reader = Reader(dataset)
    assert reader.ids() == ["a.mp4", "c.mp4"]
    for name, source in (("a.mp4", sources[0]), ("c.mp4", sources[2])):
        assert read_number(frame_to_rgb(reader.frame(name, 17)[0])) == source.numbers[17]
        assert list(shortgop.open(dataset).ids) == reader.ids()


def test_a_reader_that_follows_the_page_finds_labels_as_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"label": 3, "split": "train"}, {"label": 4, "tags": [1, "ü"], "split": "prüf"}]
    lines = []
    for number, row in enumerate(rows):
        make_video(tmp_path / f"{number}.mp4", pts=constant_rate_pts(Fraction(5), 2), timebase=Fraction(1, 5))
        lines.append(json.dumps({"path": f"{number}.mp4", **row}))
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    make_dataset([tmp_path / "list.jsonl"], tmp_path / "dataset")
    reader = Reader(tmp_path / "dataset")
    said: list[dict[str, Any]] = [{}, {}]
    for number, described in enumerate(reader.root["columns"].attrs["shortgop"]["columns"]):
        path, kind = f"columns/{number}", described["kind"]
        for video in np.flatnonzero(reader.column(f"{path}/present")).tolist():
            if kind in {"text", "json"}:
                text = bytes(reader.ragged(f"{path}/values", video)).decode()
                said[video][described["name"]] = json.loads(text) if kind == "json" else text
            else:
                said[video][described["name"]] = reader.column(f"{path}/values")[video].item()
    assert said == rows


def test_the_page_lists_every_table_and_column() -> None:
    from shortgop.manifests.schema import SCHEMA

    page = (ROOT / "docs" / "format.md").read_text()
    for table, columns in SCHEMA.items():
        assert f"**{table}**" in page
        for column in columns:
            assert f"`{column}`" in page or f"`{table}/{column}`" in page, f"{table}/{column}"


def test_the_pages_example_is_a_root(tmp_path: Path) -> None:
    from shortgop.manifests.dataset_files.root_file import read_root
    from shortgop.prep.profile import Profile

    page = (ROOT / "docs" / "format.md").read_text()
    (tmp_path / "zarr.json").write_text(page.split("```json")[1].split("```")[0])
    assert read_root(DiskStorage(tmp_path)).snapshot == "000002"
    assert read_root(DiskStorage(tmp_path)).profile == Profile().to_json()


def test_the_pages_delta_and_crc() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926
    values = np.array([5, 3, -(2**31), 2**31 - 1], dtype="<i4")
    encoded = np.concatenate([values[:1], np.diff(values)])
    assert np.cumsum(encoded, dtype="<i4").tolist() == values.tolist()
