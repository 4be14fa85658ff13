"""A source is one file: whatever it is called, and whatever else it names, nothing but that file is read."""

from __future__ import annotations

import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import imageio_ffmpeg
import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import encode_pictures, numbered
from shortgop.prep.probing.header_estimate import estimate
from shortgop.prep.probing.opening import input_argv
from shortgop.prep.probing.probe import probe
from shortgop.prep.running.ffmpeg import find_ffmpeg, running
from synthetic import SyntheticVideo, burn, constant_rate_pts, make_video, read_number


def ffmpeg(*arguments: object) -> None:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-nostdin", "-y", *map(str, arguments)]
    subprocess.run(command, check=True)


def picture(file: Path) -> Path:
    """Write a picture in the format that the suffix of `file` names."""
    ffmpeg("-f", "lavfi", "-i", "testsrc=size=96x64", "-frames:v", 1, "-update", 1, file)
    return file


# Formats that lead to other files

SCRIPTS = {
    "a concat script": "ffconcat version 1.0\nfile constant.mp4\n",
    "an HLS playlist": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nconstant.mp4\n#EXT-X-ENDLIST\n",
    "a DASH manifest": '<?xml version="1.0"?>\n<MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period/></MPD>',
    "an IMF composition playlist": (
        '<?xml version="1.0"?>\n<CompositionPlaylist xmlns="http://www.smpte-ra.org/schemas/2067-3/2013"/>'
    ),
    "an SDP description": "v=0\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nm=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n",
    "a VobSub index": "# VobSub index file, v7 (do not modify this line!)\nid: en, index: 0\n",
    "a Magic Lantern video": "MLVI4\0\0\0v2.0",
}


@pytest.mark.parametrize("suffix", [".mp4", ".mpd"])
@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_script_is_not_followed_to_other_files_and_called_by_its_name(
    kind: str, suffix: str, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    (tmp_path / "constant.mp4").write_bytes(constant_video.path.read_bytes())
    script = tmp_path / f"script{suffix}"
    script.write_text(SCRIPTS[kind], newline="")
    with pytest.raises(shortgop.NotAVideoError, match=f"is {kind}.*a source is one file; give those files") as caught:
        probe(str(script))
    assert caught.value.file == str(script)
    assert estimate(str(script), None).frames == 0


# Scripts that were given on purpose


@pytest.fixture
def two_parts(tmp_path: Path) -> Path:
    """Write the numbers 0 to 19 and 20 to 39 into two files, one with a space in its name; give their folder."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for name, first in (("one.mp4", 0), ("part two.mp4", 20)):
        pts = constant_rate_pts(Fraction(1, 10), 20)
        make_video(folder / name, pts=pts, timebase=Fraction(1, 10), first_number=first)
    return folder


def shown(source: Path, folder: Path) -> list[int]:
    """The numbers that a dataset of this source shows."""
    make_dataset([source], folder / "dataset")
    (video,) = shortgop.open(folder / "dataset")
    return [read_number(frame) for frame in video.get_all_frames().data]


def test_a_concat_script_that_says_so_in_its_name_is_followed(two_parts: Path, tmp_path: Path) -> None:
    script = tmp_path / "both.ffconcat"
    script.write_text(f"ffconcat version 1.0\nfile parts/one.mp4\nfile '{two_parts}/part two.mp4'\n")
    assert shown(script, tmp_path) == list(range(40))


def test_an_hls_playlist_that_says_so_in_its_name_is_followed(two_parts: Path, tmp_path: Path) -> None:
    ffmpeg("-i", two_parts / "one.mp4", "-c", "copy", "-f", "hls", "-hls_list_size", 0, tmp_path / "inner.m3u8")
    (tmp_path / "talk.m3u8").write_text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\ninner.m3u8\n")
    assert shown(tmp_path / "talk.m3u8", tmp_path) == list(range(20))


def test_pictures_one_after_the_other_are_a_video_by_a_concat_script(tmp_path: Path) -> None:
    lines = ["ffconcat version 1.0"]
    for number in range(5):
        file = tmp_path / f"{number}.png"
        with av.open(file, "w", format="image2") as container:
            stream = container.add_stream("png", rate=10)
            stream.width, stream.height, stream.pix_fmt = 96, 64, "rgb24"
            frame = av.VideoFrame.from_ndarray(burn(number, 96, 64)).reformat(format="rgb24")
            container.mux(stream.encode(frame))
            container.mux(stream.encode())
        lines += [f"file {file.name}", "duration 0.2"]
    (tmp_path / "slides.ffconcat").write_text("\n".join(lines))
    assert shown(tmp_path / "slides.ffconcat", tmp_path) == list(range(5))
    assert shortgop.open(tmp_path / "dataset")[0].metadata.fps == 5


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "a.ffconcat",
            "ffconcat version 1.0\nfile lost.mp4\n",
            "a.ffconcat names 'lost.mp4', but there is no file",
        ),
        ("a.ffconcat", "ffconcat version 1.0\n\nfile 'lost\n", r"a.ffconcat, line 3: No closing quotation; correct"),
        ("a.ffconcat", "ffconcat version 1.0\nfile http://h/a.mp4\n", "names 'http://h/a.mp4', but only files on"),
        ("a.m3u8", "#EXTM3U\n#EXTINF:1,\nlost.ts\n#EXT-X-ENDLIST\n", "a.m3u8 names 'lost.ts', but there is no file"),
        ("a.m3u8", "#EXTM3U\n#EXTINF:1,\nlost.ts\n", "without #EXT-X-ENDLIST: its stream goes on; add that line"),
        ("a.m3u8", "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nb.m3u8\n", "b.m3u8 names 'lost.ts'"),
    ],
)
def test_a_script_that_cannot_be_followed_to_its_end_says_where(
    name: str, text: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "b.m3u8").write_text("#EXTM3U\n#EXTINF:1,\nlost.ts\n#EXT-X-ENDLIST\n")
    (tmp_path / name).write_text(text)
    with pytest.raises(shortgop.SourceError, match=reason):
        probe(str(tmp_path / name))


@pytest.mark.parametrize("line", ["#EXT-X-STREAM-INF:BANDWIDTH=1", "#EXTINF:1,\n#EXT-X-ENDLIST"])
def test_playlists_that_lead_to_each_other_are_refused(line: str, tmp_path: Path) -> None:
    """FFmpeg follows them until its stack is full."""
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.m3u8").write_text(f"#EXTM3U\n{line}\n{other}.m3u8\n")
    with pytest.raises(shortgop.NotAVideoError, match=r"names .*\.m3u8, which is an HLS playlist; name the videos"):
        probe(str(tmp_path / "a.m3u8"))


def test_a_script_given_on_purpose_leads_to_no_other_script(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """Only what the user named is taken for a script."""
    (tmp_path / "constant.mp4").write_bytes(constant_video.path.read_bytes())
    (tmp_path / "inner.mp4").write_text(SCRIPTS["an HLS playlist"])
    (tmp_path / "outer.ffconcat").write_text("ffconcat version 1.0\nfile inner.mp4\n")
    with pytest.raises(shortgop.NotAVideoError, match=r"outer.ffconcat names .*inner.mp4, which is an HLS playlist"):
        probe(str(tmp_path / "outer.ffconcat"))


def test_folders_are_not_searched_for_scripts(two_parts: Path, tmp_path: Path) -> None:
    (two_parts / "both.ffconcat").write_text("ffconcat version 1.0\nfile one.mp4\n")
    report = make_dataset([two_parts], tmp_path / "dataset")
    assert (report.videos_added, len(report.failures)) == (2, 0)


def test_a_job_refuses_a_concat_script_and_takes_the_file_beside_it(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "constant.mp4").write_bytes(constant_video.path.read_bytes())
    (folder / "script.mp4").write_text(SCRIPTS["a concat script"])
    report = make_dataset([folder], tmp_path / "dataset")
    assert (report.videos_added, [failure.id for failure in report.failures]) == (1, ["script.mp4"])
    assert "is a concat script" in report.failures[0].reason


@pytest.mark.parametrize("kind", ["a concat script", "an HLS playlist"])
@pytest.mark.parametrize("demuxer", ["", "mov", "matroska", "mpegts"])
def test_ffmpeg_does_not_follow_a_file_that_became_a_script_since_it_was_looked_at(
    kind: str, demuxer: str, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    (tmp_path / "constant.mp4").write_bytes(constant_video.path.read_bytes())
    script = tmp_path / "script.mp4"
    script.write_text(SCRIPTS[kind])
    argv = ["-nostdin", "-v", "error", *input_argv(str(script), demuxer), "-f", "null", "-"]
    with running(find_ffmpeg().path, argv, "<none>") as run:
        run.stdout.read()
    assert run.returncode != 0


def test_ffmpeg_reads_no_protocol_but_file(tmp_path: Path) -> None:
    with running(find_ffmpeg().path, ["-v", "error", *input_argv("x", "mov")[:-1], "data:,x"], "<none>") as run:
        run.stdout.read()
    assert "not on whitelist" in run.stderr


# Names


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    "name",
    ["%03d.mp4", "a%d.gif", "%05d.jpg", "b%%3d.png", "x*[1]?{a,b}.mp4", "http:x.mp4", "-i.mp4", "a|b.mp4", "é\n.mp4"],
)
def test_a_name_that_ffmpeg_might_take_for_something_else_is_that_one_file(
    name: str, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    # Files that a pattern would find.
    for neighbour in ("000.jpg", "001.jpg", "00000.jpg", "00001.jpg", "a0.gif", "a1.gif"):
        picture(folder / neighbour)
    (folder / name).write_bytes(constant_video.path.read_bytes())
    report = make_dataset([folder / name], tmp_path / "dataset")
    assert report.failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video.get_frames_at([0, 50, 99]).data] == [0, 50, 99]


# Pictures


@pytest.mark.parametrize("suffix", [".mp3", ".flac", ".m4a", ".ogg", ".mka"])
def test_an_audio_file_with_cover_art_has_no_video(suffix: str, tmp_path: Path) -> None:
    cover, sound = picture(tmp_path / "cover.jpg"), tmp_path / f"song{suffix}"
    tone = ("-f", "lavfi", "-i", "sine=duration=1")
    if suffix == ".mka":
        ffmpeg(*tone, "-attach", cover, "-metadata:s:t", "mimetype=image/jpeg", sound)
    elif suffix == ".ogg":
        block = _flac_picture_block(tmp_path, cover)
        ffmpeg(*tone, "-c:a", "libvorbis", "-metadata:s:a", f"METADATA_BLOCK_PICTURE={block}", sound)
    else:
        ffmpeg(*tone, "-i", cover, "-map", 0, "-map", 1, "-c:v", "copy", "-disposition:v", "attached_pic", sound)
    with pytest.raises(shortgop.NotAVideoError, match=r"has no video, only a cover picture"):
        probe(str(sound))
    assert estimate(str(sound), None).frames == 0


def _flac_picture_block(folder: Path, cover: Path) -> str:
    import base64

    data = cover.read_bytes()
    numbers = [(3).to_bytes(4, "big"), (10).to_bytes(4, "big"), b"image/jpeg", bytes(4), bytes(16)]
    return base64.b64encode(b"".join(numbers) + len(data).to_bytes(4, "big") + data).decode()


@pytest.mark.parametrize("disposition", ["attached_pic", "default", "timed_thumbnails+attached_pic"])
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_cover_art_beside_a_video_is_passed_over(suffix: str, disposition: str, tmp_path: Path) -> None:
    cover = picture(tmp_path / "cover.jpg")
    plain = make_video(tmp_path / "plain.mp4", pts=constant_rate_pts(Fraction(30), 10), timebase=Fraction(1, 30))
    movie = tmp_path / f"movie{suffix}"
    if suffix == ".mkv":
        ffmpeg("-i", plain.path, "-c", "copy", "-attach", cover, "-metadata:s:t", "mimetype=image/jpeg", movie)
    else:
        # The cover comes first; as the default track it is a thumbnail like that of some cameras.
        ffmpeg(
            *("-i", cover, "-i", plain.path, "-map", 0, "-map", 1, "-c", "copy"),
            *("-disposition:v:0", disposition, "-disposition:v:1", 0, movie),
        )
    source = probe(str(movie))
    assert source.pts is not None
    assert (source.codec, len(source.pts)) == ("h264", 10)
    make_dataset([movie], tmp_path / "dataset")
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0].get_all_frames().data] == [
        *range(10)
    ]


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv", "ts", "avi"])
def test_of_two_lenses_the_first_is_prepared_whichever_has_more_bits(suffix: str, tmp_path: Path) -> None:
    """FFmpeg takes that with more bits in MP4: of each file of a camera it may be another one."""
    lenses = [
        make_video(
            tmp_path / f"lens{lens}.mp4", pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30),
            b_frames=0, first_number=100 * lens, options={"preset": "veryfast", "crf": quality},
        ).path
        for lens, quality in enumerate(("35", "5"))
    ]  # fmt: skip
    for first in (0, 1):
        both = tmp_path / f"both{first}.{suffix}"
        inputs = ("-i", lenses[first], "-i", lenses[1 - first])
        ffmpeg(*inputs, "-map", 0, "-map", 1, "-c", "copy", both)
        folder = tmp_path / f"{first}"
        assert shown(both, folder) == list(range(100 * first, 100 * first + 20))
        assert "other video dropped" in shortgop.open(folder / "dataset")[0].changes.given_up
    ffmpeg("-i", tmp_path / f"both0.{suffix}", "-map", "0:v:1", "-c", "copy", tmp_path / "OUT.mp4")
    assert shown(tmp_path / "OUT.mp4", tmp_path) == list(range(100, 120))


def test_a_track_of_depth_is_not_taken_for_the_pictures_that_it_belongs_to(tmp_path: Path) -> None:
    """FFmpeg takes the larger one, or that with more bits, as it does not tell auxiliary tracks from others."""
    tracks = [
        make_video(
            tmp_path / f"{first}.mp4", pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30),
            size=size, first_number=first,
        ).path
        for first, size in ((0, (96, 64)), (100, (192, 128)))
    ]  # fmt: skip
    for number, order in enumerate((tracks, tracks[::-1])):
        source = tmp_path / f"both{number}.mp4"
        ffmpeg("-i", order[0], "-i", order[1], "-map", 0, "-map", 1, "-c", "copy", source)
        data = bytearray(source.read_bytes())
        kinds = [match.end() - 4 for match in re.finditer(b"hdlr.{8}vide", data)]
        assert len(kinds) == 2
        depth = kinds[order.index(tracks[1])]
        data[depth : depth + 4] = b"auxv"
        source.write_bytes(data)
        assert shown(source, tmp_path / f"{number}") == list(range(20))


@pytest.mark.parametrize(("hundredths", "rate"), [(0, 10), (1, 10), (2, 50), (3, Fraction(100, 3))])
def test_a_gif_that_says_it_is_too_fast_is_as_fast_as_in_browsers(
    hundredths: int, rate: Fraction, tmp_path: Path
) -> None:
    plain = make_video(tmp_path / "x.mp4", pts=constant_rate_pts(Fraction(10), 20), timebase=Fraction(1, 10))
    ffmpeg("-i", plain.path, tmp_path / "x.gif")
    mark = b"\x21\xf9\x04"
    first, *others = (tmp_path / "x.gif").read_bytes().split(mark)
    delayed = [other[:1] + hundredths.to_bytes(2, "little") + other[3:] for other in others]
    assert len(delayed) == 20
    (tmp_path / "x.gif").write_bytes(mark.join([first, *delayed]))
    assert shown(tmp_path / "x.gif", tmp_path) == list(range(20))
    assert shortgop.open(tmp_path / "dataset")[0].metadata.fps == rate


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".webp", ".tiff"])
@pytest.mark.parametrize("named", ["", ".mp4"])
def test_a_still_picture_is_no_video(suffix: str, named: str, tmp_path: Path) -> None:
    file = picture(tmp_path / f"still{suffix}")
    file = file.rename(tmp_path / f"still{named or suffix}")
    with pytest.raises(shortgop.NotAVideoError, match=r"is a still picture, not a video"):
        probe(str(file))


def test_a_still_picture_that_the_decoder_does_not_know_is_called_that(tmp_path: Path) -> None:
    """PyAV's FFmpeg has no decoder of JPEG XL: it was called a video of an unknown codec."""
    still = encode_pictures(tmp_path / "x.jxl", numbered([1]), "-c:v", "libjxl")
    with pytest.raises(shortgop.NotAVideoError, match=r"x\.jxl is a still picture, not a video"):
        probe(str(still))


def test_a_gif_is_a_video(tmp_path: Path) -> None:
    with av.open(tmp_path / "a.gif", "w") as container:
        stream = container.add_stream("gif", rate=10)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "rgb8"
        for number in range(5):
            frame = av.VideoFrame.from_ndarray(burn(number, 96, 64)).reformat(format="rgb8")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    make_dataset([tmp_path / "a.gif"], tmp_path / "dataset")
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video.get_all_frames().data] == list(range(5))


def test_too_many_open_files_are_not_the_sources_fault(constant_video: SyntheticVideo) -> None:
    code = (
        "import os, resource, sys\n"
        "from shortgop.prep.probing.probe import probe\n"
        "probe(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "try:\n"
        "    while True: os.open('/dev/null', os.O_RDONLY)\n"
        "except OSError: pass\n"
        "try: probe(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    argv = [sys.executable, "-c", code, str(constant_video.path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"SourceError cannot read {constant_video.path}: Too many open files; fix that")
