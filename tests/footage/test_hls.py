"""Playlists of HLS that are encrypted, name their segments oddly, or lack something."""

from __future__ import annotations

import re
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import ffmpeg
from shortgop.prep.probing.probe import probe
from synthetic import constant_rate_pts, make_video, read_number


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Write a video of the numbers 0 to 19 into a folder of its own."""
    (tmp_path / "clip").mkdir()
    pts = constant_rate_pts(Fraction(1, 10), 20)
    return make_video(tmp_path / "clip" / "one.mp4", pts=pts, timebase=Fraction(1, 10)).path


def shown(source: Path, folder: Path) -> list[int]:
    """The numbers that a dataset of this source shows."""
    make_dataset([source], folder / "dataset")
    (video,) = shortgop.open(folder / "dataset")
    return [read_number(frame) for frame in video.get_all_frames().data]


def write_playlist(clip: Path, playlist: Path) -> str:
    """Write a video as a playlist of segments; its text."""
    ffmpeg("-i", clip, "-c", "copy", "-f", "hls", "-hls_list_size", "0", playlist)
    return playlist.read_text()


@pytest.mark.parametrize(
    "key",
    [
        "METHOD=NONE",
        'METHOD="NONE"',
        'METHOD=NONE,URI="lost.key"',
        'URI="https://example.com/key",METHOD=NONE',
        'KEYFORMAT="METHOD=AES-128,",METHOD=NONE',
        'METHOD=NONE,KEYFORMAT="com.example,METHOD=AES-128"',
        "METHOD=",
    ],
)
def test_an_hls_playlist_that_says_that_it_is_not_encrypted_is_prepared(key: str, clip: Path, tmp_path: Path) -> None:
    """The standard has no quotes there, and FFmpeg takes both. Of a key that nothing needs it was said that it is not
    there."""
    text = write_playlist(clip, tmp_path / "x.m3u8")
    (tmp_path / "x.m3u8").write_text(text.replace("#EXTINF", f"#EXT-X-KEY:{key}\n#EXTINF", 1))
    assert shown(tmp_path / "x.m3u8", tmp_path) == list(range(20))


@pytest.mark.parametrize(
    "line",
    [
        '#EXT-X-DATERANGE:ID="0",CLASS="com.apple.hls.interstitial",START-DATE="2024-01-01T00:00:00Z",'
        'X-ASSET-URI="advertisement.m3u8"',
        '#EXT-X-SESSION-DATA:DATA-ID="title",URI="title.json"',
        '#EXT-X-RENDITION-REPORT:URI="https://example.com/low.m3u8"',
    ],
)
def test_files_that_a_playlist_names_beside_its_segments_need_not_be_there(
    line: str, clip: Path, tmp_path: Path
) -> None:
    """FFmpeg does not read them. A playlist with places for advertisements was refused."""
    text = write_playlist(clip, tmp_path / "x.m3u8")
    (tmp_path / "x.m3u8").write_text(text.replace("#EXTINF", f"{line}\n#EXTINF", 1))
    assert shown(tmp_path / "x.m3u8", tmp_path) == list(range(20))


@pytest.mark.parametrize(
    "line",
    [
        '#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="s",NAME="English",LANGUAGE="en",URI="subtitles.m3u8"',
        '#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1000,URI="keyframes.m3u8"',
        '#EXT-X-IMAGE-STREAM-INF:BANDWIDTH=1000,URI="https://example.com/small.m3u8"',
    ],
)
def test_subtitles_and_small_pictures_that_a_playlist_names_need_not_be_there(
    line: str, clip: Path, tmp_path: Path
) -> None:
    write_playlist(clip, tmp_path / "inner.m3u8")
    (tmp_path / "x.m3u8").write_text(f"#EXTM3U\n{line}\n#EXT-X-STREAM-INF:BANDWIDTH=100000\ninner.m3u8\n")
    assert shown(tmp_path / "x.m3u8", tmp_path) == list(range(20))


def test_a_playlist_with_subtitles_is_prepared(clip: Path, tmp_path: Path) -> None:
    """FFmpeg reads them, and failed as their format was not among those that it may read."""
    write_playlist(clip, tmp_path / "inner.m3u8")
    (tmp_path / "words.vtt").write_text("WEBVTT\n\n00:00:00.000 --> 00:00:00.600\nhello\n")
    words = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:0.8,\nwords.vtt\n"
    named = '#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="s",NAME="English",URI="words.m3u8"'
    inner = '#EXT-X-STREAM-INF:BANDWIDTH=100000,SUBTITLES="s"\ninner.m3u8'
    (tmp_path / "x.m3u8").write_text(f"#EXTM3U\n{named}\n{inner}\n")
    (tmp_path / "words.m3u8").write_text(words)
    # FFmpeg would wait for more of them.
    with pytest.raises(shortgop.NotAVideoError, match=r"words\.m3u8 is an HLS playlist without #EXT-X-ENDLIST"):
        probe(str(tmp_path / "x.m3u8"))
    (tmp_path / "words.m3u8").write_text(words + "#EXT-X-ENDLIST\n")
    assert shown(tmp_path / "x.m3u8", tmp_path) == list(range(20))


@pytest.mark.parametrize(
    ("method", "key"), [("SAMPLE-AES", "skd://of-a-server"), ("SAMPLE-AES-CTR", "data:,x"), ("AES-256", "lost.key")]
)
def test_a_playlist_that_no_command_decrypts_is_called_encrypted_wherever_its_key_is(
    method: str, key: str, clip: Path, tmp_path: Path
) -> None:
    """It was said that the key is to be downloaded, or put there."""
    text = write_playlist(clip, tmp_path / "x.m3u8")
    line = f'#EXT-X-KEY:METHOD={method},URI="{key}",KEYFORMAT="identity"'
    (tmp_path / "x.m3u8").write_text(text.replace("#EXTINF", f"{line}\n#EXTINF", 1))
    with pytest.raises(shortgop.NotAVideoError, match=rf"encrypted \({method}\); decrypt .* first, with its key"):
        probe(str(tmp_path / "x.m3u8"))


def rename_segments(folder: Path, suffix: str) -> None:
    """Give the segments (*.ts) of x.m3u8 another suffix."""
    for segment in folder.glob("*.ts"):
        segment.rename(segment.with_suffix(suffix))
    (folder / "x.m3u8").write_text((folder / "x.m3u8").read_text().replace(".ts", suffix))


def made_by_command(error: Exception, source: Path) -> Path:
    """The file that the command in an error makes of a source."""
    (command,) = re.findall("`ffmpeg (.*?)`", str(error))
    made = source.parent / "OUT.mp4"
    ffmpeg(*[{"FILE": source, "OUT.mp4": made}.get(word, word) for word in command.split()])
    return made


@pytest.mark.parametrize("suffix", [".ts", ".jpg"])
def test_an_encrypted_hls_playlist_is_called_that_with_the_command_that_decrypts_it(
    suffix: str, clip: Path, tmp_path: Path
) -> None:
    """It was said not to open, with the advice to correct it. Servers call segments otherwise, which FFmpeg refuses."""
    (tmp_path / "secret.key").write_bytes(bytes(range(16)))
    (tmp_path / "key.txt").write_text(f"secret.key\n{tmp_path}/secret.key\n")
    key = ("-hls_key_info_file", tmp_path / "key.txt", "-hls_list_size", "0")
    names = ("-hls_segment_filename", tmp_path / "%d.ts")
    ffmpeg("-i", clip, "-c", "copy", "-f", "hls", *key, *names, tmp_path / "x.m3u8")
    rename_segments(tmp_path, suffix)
    with pytest.raises(shortgop.NotAVideoError, match=r"line \d: its segments are encrypted \(AES-128\)") as caught:
        probe(str(tmp_path / "x.m3u8"))
    assert shown(made_by_command(caught.value, tmp_path / "x.m3u8"), tmp_path) == list(range(20))


def test_a_playlist_that_has_its_key_in_itself_is_told_with_the_command_that_decrypts_it(
    clip: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.key").write_bytes(bytes(range(16)))
    (tmp_path / "key.txt").write_text(f"data:text/plain;base64,AAECAwQFBgcICQoLDA0ODw==\n{tmp_path}/secret.key\n")
    key = ("-hls_key_info_file", tmp_path / "key.txt", "-hls_list_size", "0")
    ffmpeg("-i", clip, "-c", "copy", "-f", "hls", *key, tmp_path / "x.m3u8")
    with pytest.raises(shortgop.NotAVideoError, match=r"its segments are encrypted \(AES-128\)") as caught:
        probe(str(tmp_path / "x.m3u8"))
    assert shown(made_by_command(caught.value, tmp_path / "x.m3u8"), tmp_path) == list(range(20))


def test_the_command_for_a_playlist_of_which_the_sound_alone_is_encrypted_makes_the_pictures_too(
    tmp_path: Path,
) -> None:
    """It was to be run on the playlist of the sound."""
    with_sound = make_video(
        tmp_path / "x.mp4", pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30), audio_start=Fraction(0)
    )
    (tmp_path / "secret.key").write_bytes(bytes(range(16)))
    (tmp_path / "key.txt").write_text(f"secret.key\n{tmp_path}/secret.key\n")
    key = ("-hls_key_info_file", tmp_path / "key.txt")
    hls = ("-f", "hls", "-hls_list_size", "0")
    ffmpeg("-i", with_sound.path, "-an", "-c", "copy", *hls, tmp_path / "pictures.m3u8")
    ffmpeg("-i", with_sound.path, "-vn", "-c:a", "aac", *hls, *key, tmp_path / "sound.m3u8")
    (tmp_path / "talk.m3u8").write_text(
        '#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="x",DEFAULT=YES,URI="sound.m3u8"\n'
        '#EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO="a"\npictures.m3u8\n'
    )
    with pytest.raises(shortgop.NotAVideoError, match=r"sound.m3u8, line \d: its segments are encrypted") as caught:
        probe(str(tmp_path / "talk.m3u8"))
    assert caught.value.file == str(tmp_path / "talk.m3u8")
    assert f"decrypt {tmp_path}/talk.m3u8 first" in str(caught.value)
    assert shown(made_by_command(caught.value, tmp_path / "talk.m3u8"), tmp_path) == list(range(20))


@pytest.mark.parametrize("suffix", [".jpg", "", ".mp4"])
def test_an_hls_playlist_of_files_with_other_suffixes_is_refused_with_the_command_that_reads_it(
    suffix: str, clip: Path, tmp_path: Path
) -> None:
    """Servers call segments otherwise, and FFmpeg refuses them."""
    names = ("-hls_list_size", "0", "-hls_segment_filename", tmp_path / "%d.ts")
    ffmpeg("-i", clip, "-c", "copy", "-f", "hls", *names, tmp_path / "x.m3u8")
    rename_segments(tmp_path, suffix)
    with pytest.raises(shortgop.NotAVideoError, match="is an HLS playlist that does not open") as caught:
        probe(str(tmp_path / "x.m3u8"))
    assert shown(made_by_command(caught.value, tmp_path / "x.m3u8"), tmp_path) == list(range(20))


@pytest.mark.parametrize("is_named", [False, True])
def test_a_playlist_that_begins_with_a_byte_order_mark_is_refused_with_the_command_that_takes_it_away(
    is_named: bool, clip: Path, tmp_path: Path
) -> None:
    """As editors on Windows write it. It was said not to open, with the advice to correct it."""
    (tmp_path / "x.m3u8").write_text("\ufeff" + write_playlist(clip, tmp_path / "x.m3u8"))
    (tmp_path / "all.m3u8").write_text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\nx.m3u8\n")
    with pytest.raises(shortgop.NotAVideoError, match=r"x\.m3u8 begins with a byte order mark") as caught:
        probe(str(tmp_path / ("all.m3u8" if is_named else "x.m3u8")))
    (command,) = re.findall("`(.*?)`", str(caught.value))
    subprocess.run(["sh", "-c", command.replace("FILE", "x.m3u8")], cwd=tmp_path, check=True)
    if is_named:
        assert "put OUT.m3u8 of" in str(caught.value)
        assert "in its place" in str(caught.value)
        (tmp_path / "OUT.m3u8").replace(tmp_path / "x.m3u8")
    assert shown(tmp_path / ("all.m3u8" if is_named else "OUT.m3u8"), tmp_path) == list(range(20))


def test_a_concat_script_that_begins_with_a_byte_order_mark_is_called_that(clip: Path, tmp_path: Path) -> None:
    (tmp_path / "x.ffconcat").write_text(f"\ufeffffconcat version 1.0\nfile '{clip}'\n")
    with pytest.raises(shortgop.NotAVideoError, match=r"byte order mark.* give OUT\.ffconcat of `tail -c \+4 FILE"):
        probe(str(tmp_path / "x.ffconcat"))


def test_a_playlist_of_fragments_that_lacks_their_beginning_is_told_what_to_add(clip: Path, tmp_path: Path) -> None:
    """It was said not to open."""
    fragments = ("-hls_segment_type", "fmp4", "-hls_fmp4_init_filename", "init.mp4", "-hls_list_size", "0")
    ffmpeg("-i", clip, "-c", "copy", "-f", "hls", *fragments, tmp_path / "x.m3u8")
    lines = (tmp_path / "x.m3u8").read_text().splitlines(keepends=True)
    (tmp_path / "x.m3u8").write_text("".join(line for line in lines if not line.startswith("#EXT-X-MAP")))
    with pytest.raises(shortgop.NotAVideoError, match="put the line .* before the first of them") as caught:
        probe(str(tmp_path / "x.m3u8"))
    (line,) = re.findall("put the line (.*?) before", str(caught.value))
    text = (tmp_path / "x.m3u8").read_text()
    (tmp_path / "x.m3u8").write_text(text.replace("#EXTINF", line.replace("FILE", "init.mp4") + "\n#EXTINF", 1))
    assert shown(tmp_path / "x.m3u8", tmp_path) == list(range(20))
    # Segments that have it themselves need no such line.
    for segment in tmp_path.glob("x*.m4s"):
        segment.write_bytes((tmp_path / "init.mp4").read_bytes() + segment.read_bytes())
    (tmp_path / "x.m3u8").write_text(text)
    assert probe(str(tmp_path / "x.m3u8")).num_packets == 20


PAGE = b"<html>Not found</html>"
HLS = ("-f", "hls", "-hls_list_size", "0", "-hls_time", "0.5")


def of_segments(folder: Path, suffix: str, *options: str, size: tuple[int, int] = (96, 64)) -> Path:
    """A playlist of four segments of five frames."""
    pts = constant_rate_pts(Fraction(10), 20)
    source = make_video(folder / "whole.mp4", pts=pts, timebase=Fraction(1, 10), gop=5, size=size)
    kind = ("-hls_segment_type", "fmp4") if suffix == "m4s" else ()
    names = () if options else ("-hls_segment_filename", folder / f"%d.{suffix}")
    ffmpeg("-i", source.path, "-c", "copy", *HLS, *kind, *options, *names, folder / "x.m3u8")
    assert len([*folder.glob(f"*.{suffix}")]) == (1 if options else 4)
    return folder / "x.m3u8"


@pytest.mark.parametrize("options", [("-hls_flags", "single_file"), ()], ids=["ranges of a file", "files"])
def test_a_playlist_of_keyframes_alone_is_refused(options: tuple[str, ...], tmp_path: Path) -> None:
    """It was called damaged, or prepared as a video of few frames without a word."""
    playlist = of_segments(tmp_path, "ts", *options)
    text = playlist.read_text()
    playlist.write_text(text.replace("#EXTINF", "#EXT-X-I-FRAMES-ONLY\n#EXTINF", 1))
    remedy = r"keyframes alone \(#EXT-X-I-FRAMES-ONLY\).* take that line out if the stream has no others"
    with pytest.raises(shortgop.NotAVideoError, match=remedy):
        probe(str(playlist))
    playlist.write_text(text)
    assert probe(str(playlist)).num_packets == 20


def test_what_is_wrong_with_files_that_are_not_needed_is_no_error(tmp_path: Path) -> None:
    """The variant of which FFmpeg shows nothing, and subtitles."""
    (tmp_path / "low").mkdir()
    of_segments(tmp_path, "m4s", size=(192, 128))
    of_segments(tmp_path / "low", "m4s")
    (tmp_path / "low" / "1.m4s").write_bytes(PAGE)
    words = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:0.8,\nwords.vtt\n#EXT-X-ENDLIST\n"
    (tmp_path / "words.m3u8").write_text("\ufeff" + words)
    (tmp_path / "words.vtt").write_bytes(b"")
    (tmp_path / "all.m3u8").write_text(
        '#EXTM3U\n#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="s",NAME="English",URI="words.m3u8"\n'
        '#EXT-X-STREAM-INF:BANDWIDTH=100000,SUBTITLES="s"\nlow/x.m3u8\n'
        '#EXT-X-STREAM-INF:BANDWIDTH=900000,SUBTITLES="s"\n# the best\nx.m3u8\n'
    )
    source = probe(str(tmp_path / "all.m3u8"))
    assert (source.num_packets, source.suspicion) == (20, "")
