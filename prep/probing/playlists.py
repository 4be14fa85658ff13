"""Scripts and playlists, which name other files: decides which of them are read, and checks the files that they name.

A script is read ("followed") if it has the suffix of its format: a user who gives `talk.ffconcat` or `talk.m3u8` wants
the files that it names. With any other suffix it is refused: a user who gives `talk.mp4` wants that file.
"""

from __future__ import annotations

import codecs
import re
import shlex
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ...errors import NotAVideoError, SourceError, SourceNotFoundError
from .containers.file_kinds import page_or_pointer
from .containers.joined_files import FilePart
from .containers.mp4_fragments import first_times, lacks_moov
from .containers.searching import seek_within
from .other_beginnings import Statement, statement_of

_HEAD_BYTES = 4096
# A playlist of a day in segments of a second takes 3 MB.
_MAX_BYTES = 1 << 26
# Names and values of a tag (RFC 8216, 4.2); a comma within quotes ends no value.
_ATTRIBUTE = re.compile(r'([A-Z0-9-]+)=("[^"]*"|[^,]*)(?:,|$)')
# The tags whose files FFmpeg reads; others name, say, advertisements (X-ASSET-URI) and small pictures. It goes on where
# there are no subtitles, and reads no keys within the line itself (data:).
_KEY, _MAP, _KEYFRAMES_ONLY = "#EXT-X-KEY", "#EXT-X-MAP", "#EXT-X-I-FRAMES-ONLY"
_READS = (_KEY, _MAP, "#EXT-X-MEDIA")
_VARIANT = "#EXT-X-STREAM-INF"
_NOT_ENCRYPTED, _AES = "NONE", "AES-128"
_USUAL_SUFFIXES = (".ts", ".m4s", ".mp4")
# FFmpeg takes no file for a key that is not called as a video is.
_OF_USUAL_SUFFIX = "OUT.mp4 of `ffmpeg -allowed_extensions ALL -i FILE -c copy OUT.mp4`"
_OF_ANY_SUFFIX = "OUT.mp4 of `ffmpeg -allowed_extensions ALL -extension_picky 0 -i FILE -c copy OUT.mp4`"
OF_ANY_SUFFIX = (
    f"FFmpeg also refuses segments whose suffixes are not those of their formats ({', '.join(_USUAL_SUFFIXES)}): for "
    f"these give {_OF_ANY_SUFFIX}"
)
"""What to do with an HLS playlist that does not open although it is right."""
# Names may have what Python takes for the end of a line, too, such as U+2028.
_END_OF_LINE = re.compile(r"\r\n?|\n")
_NAMED = re.compile(r"(?s)[ \t]*file(?:[ \t]+(.*)|$)")
_RANGE = re.compile(r"(\d+)(?:@(\d+))?")


@dataclass(frozen=True)
class _Kind:
    """A kind of file that names others: its name in messages and how it starts; `suffix` and `demuxer` if it can be
    followed."""

    name: str
    start: bytes
    suffix: str = ""
    demuxer: str = ""


_KINDS = (
    _Kind("a concat script", rb"\s*(#.*\n\s*)*ffconcat version", ".ffconcat", "concat"),
    _Kind("an HLS playlist", rb"\s*#EXTM3U", ".m3u8", "hls"),
    _Kind("a DASH manifest", rb"(?s)\s*(<\?xml.{0,2000}?)?<([\w]+:)?MPD\b"),
    _Kind("an IMF composition playlist", rb"(?s)\s*(<\?xml.{0,2000}?)?<([\w]+:)?CompositionPlaylist\b"),
    _Kind("an SDP description", rb"v=0\r?\n[a-z]="),
    _Kind("a VobSub index", rb"# VobSub index file"),
    _Kind("a Magic Lantern video", rb"MLVI"),
)
SCRIPT_SUFFIXES = tuple(kind.suffix for kind in _KINDS if kind.suffix)
_BY_SUFFIX = {".avs": "an AviSynth script", ".vpy": "a VapourSynth script"}
# The demuxers that read scripts, with their options. Without safe=0, concat refuses absolute paths and names with
# spaces.
SCRIPT_DEMUXERS: Mapping[str, Mapping[str, str]] = {"concat": {"safe": "0"}, "hls": {}}


def script_demuxer(path: str) -> str | None:
    """The demuxer for the file at `path` if it is a script with the suffix of its format; else None.

    SourceNotFoundError where a file that it names is missing; NotAVideoError where it names something on another
    machine, or has no end. FFmpeg would skip a missing segment, and wait for the end.
    """
    suffix = Path(path).suffix.lower()
    kind = next((kind for kind in _KINDS if kind.suffix == suffix != ""), None)
    if kind is None or not re.match(kind.start, _head(path)):
        return None
    _check_has_no_mark(Path(path))
    (_check_concat if kind.demuxer == "concat" else _check_hls)(Path(path))
    return kind.demuxer


def kind_of(path: str) -> tuple[str, str] | None:
    """For a file that names other files: what it is called in messages, and the suffix with which it would be followed
    ("": none). None for other files."""
    head = _head(path)
    found = next((kind for kind in _KINDS if re.match(kind.start, head)), None)
    if found is not None:
        return found.name, found.suffix
    name = _BY_SUFFIX.get(Path(path).suffix.lower())
    return (name, "") if name else None


def segments_of(path: str) -> tuple[FilePart, ...]:
    """The segments of an HLS playlist, or of the only one that it names; none of those without a beginning of their
    own."""
    lines = _lines(Path(path))
    segments = tuple(_segments(lines, Path(path)).values())
    if any(line.startswith(_VARIANT) for line in lines):
        is_only = len(segments) == 1 and not any(_named_by(line) for line in lines)
        return segments_of(segments[0].path) if is_only else ()
    return () if any(line.startswith(_MAP) for line in lines) else segments


def _lines(playlist: Path) -> list[str]:
    """The lines of a playlist, without spaces around them as C knows them: names may have others."""
    return [line.strip(string.whitespace) for line in _lines_of(playlist)]


def _lines_of(script: Path) -> list[str]:
    return _END_OF_LINE.split(_text(script))


def _segments(lines: Sequence[str], playlist: Path) -> dict[int, FilePart]:
    """The segments of a playlist, by the numbers of their lines, from 1."""
    found: dict[int, FilePart] = {}
    # Which bytes of its file the next segment has, and where those of the segment before end in theirs.
    part, ends = "", dict[str, int]()
    for number, line in enumerate(lines, 1):
        if line.startswith("#EXT-X-BYTERANGE:"):
            part = line.partition(":")[2]
        elif line and line[0] != "#":
            place = str(_place_of(line, playlist))
            begin, length = _range_of(part, ends.get(place, 0))
            part, ends[place] = "", begin + length
            found[number] = FilePart(place, begin, length)
    return found


def _head(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(_HEAD_BYTES).removeprefix(codecs.BOM_UTF8)


def _text(script: Path) -> str:
    with script.open("rb") as file:
        return file.read(_MAX_BYTES).removeprefix(codecs.BOM_UTF8).decode(errors="surrogateescape")


def _check_has_no_mark(script: Path, given: Path | None = None) -> None:
    """NotAVideoError for a script that FFmpeg does not take for one, by its first bytes. `given`: what names it."""
    with script.open("rb") as file:
        if not file.read(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
            return
    made = f"OUT{script.suffix} of `tail -c +{len(codecs.BOM_UTF8) + 1} FILE > OUT{script.suffix}`"
    how = f"put {made} in its place" if given else f"give {made}, beside the files that it names"
    raise NotAVideoError(
        f"{script} begins with a byte order mark, which FFmpeg does not read; {how}", file=str(given or script)
    )


def concat_parts(path: str) -> tuple[tuple[int, str], ...]:
    """The line and the path of each file that a concat script names."""
    return tuple((number, str(_place_of(name, Path(path)))) for number, name in _named_in(Path(path)))


def _named_in(script: Path) -> Iterator[tuple[int, str]]:
    """The line and the name of each file in a concat script."""
    for number, line in enumerate(_lines_of(script), 1):
        if named := _NAMED.match(line):
            try:
                # FFmpeg's quoting is that of shells, without double quotes.
                lexer = shlex.shlex(named[1] or "", posix=True)
                lexer.whitespace_split, lexer.commenters, lexer.quotes = True, "", "'"
                yield number, lexer.get_token() or ""
            except ValueError as error:
                raise NotAVideoError(f"{script}, line {number}: {error}; correct the line", file=str(script)) from error


def _check_concat(script: Path) -> None:
    for _, name in _named_in(script):
        place = _place_of(name, script)
        _check_is_no_script(place, script)
        head = _head(str(place))
        what = page_or_pointer(head) if head else "empty; copy or download it again, or take it out"
        if what:
            raise NotAVideoError(f"{script} names {place}, which is {what}", file=str(script))


def _check_hls(playlist: Path, given: Path | None = None) -> None:
    """`given`: the playlist that names this one, if any does."""
    lines = _lines(playlist)
    if _KEYFRAMES_ONLY in lines:
        raise NotAVideoError(
            f"{playlist} is an HLS playlist of keyframes alone ({_KEYFRAMES_ONLY}), for fast forward and rewind; "
            "give the playlist of all frames, or take that line out if the stream has no others",
            file=str(playlist),
        )
    has_segments = any(line.startswith("#EXTINF") for line in lines)
    if has_segments and "#EXT-X-ENDLIST" not in lines:
        raise NotAVideoError(
            f"{playlist} is an HLS playlist without #EXT-X-ENDLIST: its stream goes on; add that line if the stream "
            "has ended",
            file=str(playlist),
        )
    # The command that decrypts it needs its keys. What it does not decrypt is told first.
    if any(_method(line) not in (_NOT_ENCRYPTED, _AES) for line in lines):
        _check_is_no_secret(playlist, lines, given)
    # Keys, inits and renditions are named in attributes.
    named = [name for line in lines if (name := _named_by(line)) and not _lacks_subtitles(line, playlist)]
    for number, name in enumerate([*named, *(line for line in lines if line and line[0] != "#")]):
        place = _place_of(name, playlist)
        if has_segments or given is not None:
            _check_is_no_script(place, playlist)
            continue
        if number >= len(named):
            # Without renditions, of subtitles or sound, FFmpeg reads the video.
            _check_has_no_mark(place, playlist)
        _check_hls(place, playlist)
    _check_is_no_secret(playlist, lines, given)
    _check_parts(playlist, lines)


def _attributes(line: str, *tags: str) -> dict[str, str]:
    """The attributes of a line that has one of these tags; none of another one."""
    tag, _, rest = line.partition(":")
    return {name: value.strip(' "') for name, value in _ATTRIBUTE.findall(rest)} if tag in tags else {}


def _method(line: str) -> str:
    """How the segments behind a line are encrypted, if it says that."""
    return _attributes(line, _KEY).get("METHOD") or _NOT_ENCRYPTED


def _named_by(line: str) -> str:
    """The file that FFmpeg reads for a tag, "" if it reads none: what is not encrypted has no key."""
    found = _attributes(line, *_READS)
    name = found.get("URI", "")
    has_none = name.startswith("data:") or found.get("METHOD") == _NOT_ENCRYPTED
    return "" if has_none else name


def _lacks_subtitles(line: str, playlist: Path) -> bool:
    """Whether a line names subtitles that are not on this machine."""
    if _attributes(line, *_READS).get("TYPE") != "SUBTITLES":
        return False
    try:
        return not (playlist.parent / _named_by(line).removeprefix("file:")).is_file()
    except (OSError, ValueError):
        return True


def _check_is_no_secret(playlist: Path, lines: list[str], given: Path | None) -> None:
    """NotAVideoError for a playlist whose segments are encrypted, of the one that was `given` if that names it."""
    found = [(number, _method(line)) for number, line in enumerate(lines, 1)]
    secret = [(number, method) for number, method in found if method != _NOT_ENCRYPTED]
    if secret:
        # No command decrypts the others.
        number, method = min(secret, key=lambda line: line[1] == _AES)
        segments = [line for line in lines if line and line[0] != "#"]
        command = _OF_USUAL_SUFFIX if all(name.endswith(_USUAL_SUFFIXES) for name in segments) else _OF_ANY_SUFFIX
        how = f", as {command}" if method == _AES else ", with its key"
        which = f"{playlist}, line {number}: its segments are encrypted ({method})"
        if given is not None:
            # The command has to read all that it names: this one may be the sound alone.
            which = f"{given} names {which}"
        raise NotAVideoError(f"{which}; decrypt {given or playlist} first{how}", file=str(given or playlist))


def _check_parts(playlist: Path, lines: list[str]) -> None:
    """NotAVideoError for a playlist of fragments of MP4 of which a part has another beginning (EXT-X-MAP), or times
    that begin anew, as around advertisements: FFmpeg reads the first beginning only, and leaves out earlier times. So
    for one that has no beginning."""
    stated: Statement = {}
    last: dict[int, int] = {}
    segments = _segments(lines, playlist)
    first = next(iter(segments.values()), None)
    if first is not None and not any(line.startswith(_MAP) for line in lines) and lacks_moov(first.path, first.begin):
        raise NotAVideoError(
            f"{playlist} has fragments of MP4, and does not name their beginning; put the line "
            f'{_MAP}:URI="FILE" before the first of them, with their initialization segment in place of FILE',
            file=str(playlist),
        )
    for number, line in enumerate(lines, 1):
        attributes = _attributes(line, _MAP)
        why = ""
        if "URI" in attributes:
            other = _statement(_place_of(attributes["URI"], playlist), attributes.get("BYTERANGE", ""))
            why = "has another beginning (#EXT-X-MAP)" if stated and other and other != stated else ""
            stated = stated or other
        elif stated and number in segments:
            times = first_times(*segments[number])
            is_anew = any(time <= last[track] for track, time in times.items() if track in last)
            why = "has times that begin anew" if is_anew else ""
            last |= times
        if why:
            raise NotAVideoError(
                f"{playlist}, line {number}: from here on it {why}, and FFmpeg reads all of it as the part before; "
                "give a playlist of each part",
                file=str(playlist),
            )


def _statement(place: Path, part: str) -> Statement:
    """What the beginning of an MP4 says in a `part` of a file."""
    begin, length = _range_of(part, 0)
    with place.open("rb") as file:
        seek_within(file, begin)
        return statement_of(file.read(length or _MAX_BYTES))


def _range_of(part: str, after: int) -> tuple[int, int]:
    """Where a part of a file begins, and its length, 0 for a whole file. Without a place it lies at `after`, behind the
    part before (RFC 8216, 4.3.2.2)."""
    match = _RANGE.match(part)
    return (0, 0) if match is None else (int(match[2] or after), int(match[1]))


def _check_is_no_script(place: Path, script: Path) -> None:
    """NotAVideoError for a script that another one names: FFmpeg follows playlists that name each other until its stack
    overflows."""
    kind = kind_of(str(place))
    if kind is not None:
        raise NotAVideoError(
            f"{script} names {place}, which is {kind[0]}; name the videos themselves", file=str(script)
        )


def _place_of(name: str, script: Path) -> Path:
    """The path of a file that a script names."""
    if urlsplit(name).scheme not in ("", "file"):
        raise NotAVideoError(
            f"{script} names {name!r}, but only files on this machine are read; download it and change the script",
            file=str(script),
        )
    # FFmpeg does not decode percent escapes in names, although some tools write them.
    place = script.parent / name.removeprefix("file:")
    try:
        is_there = place.is_file()
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{script} names {name!r}, which cannot be read: {error}; fix that or take the line out", file=str(script)
        ) from error
    if not is_there:
        raise SourceNotFoundError(
            f"{script} names {name!r}, but there is no file {place}; put it there, or take the line out",
            file=str(script),
        )
    return place
