"""Which pictures are wrong: of which videos, in which requests, and after which others. The machine may be gone when
somebody reads it, and the first wrong picture alone does not tell a wrong size from a wrong order of work."""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence

from check_record import Record
from error_places import places_of
from sample_gops import Gop, Planes, wrong_picture

_MOST_LISTED, _MOST_NAMED = 24, 8
# After so many errors of a video's requests the others of it are left out: each may take a new decoder.
_MOST_ERRORS = 3


class Verdicts:
    """What came of the requests for the samples of a codec. It is written down as it comes."""

    def __init__(self, record: Record, codec: str) -> None:
        self._record, self._codec = record, codec
        self._right, self._wrong, self._errors = Counter[str](), Counter[str](), Counter[str]()
        self._listed: list[str] = []
        self._layouts: dict[str, str] = {}
        self._found: list[str] = []
        self._before = "first of all"

    def is_hopeless(self, gop: Gop) -> bool:
        """Whether requests for this video have failed too often."""
        return self._errors[gop.video] >= _MOST_ERRORS

    def lies(self, gop: Gop, planes: Planes) -> None:
        """How a picture lies in memory: what its planes were made of, before they were copied."""
        if gop.video not in self._layouts:
            self._layouts[gop.video] = layout_of(planes)
            self._record.figure(f"how pictures lie in memory, {self._codec}", self._layouts)

    def look(self, gop: Gop, number: int, found: Planes, expected: Planes) -> None:
        """Compare a picture with the CPU's."""
        if wrong := wrong_picture(gop, number, found, expected):
            self._found.append(wrong)
        else:
            self._right[gop.video] += 1

    @contextlib.contextmanager
    def request(self, gop: Gop, frames: Sequence[int], what: str) -> Iterator[None]:
        """Around a request and its comparison. An error is what came of it, and the others go on."""
        self._found = []
        right = self._right[gop.video]
        try:
            yield
            if (seen := self._right[gop.video] - right + len(self._found)) != len(frames):
                self._found.append(f"{seen} pictures come out")
        except Exception as error:  # noqa: BLE001  # other sizes may be right, which tells where to look
            traceback.print_exc()
            self._errors[gop.video] += 1
            self._found.append(f"{type(error).__name__}: {error}, at {', '.join(places_of(error)[-2:])}")
        place = f"{gop.video} from frame {gop.first_number}"
        if self._found:
            self._wrong[gop.video] += len(frames) - (self._right[gop.video] - right)
            self._list(f"{what}, {place}, {self._before}")
        self._before = f"after {what} of {place}"

    def end(self) -> None:
        """Record how many are right. RuntimeError where one was not."""
        self._record.figure(f"pictures equal to the CPU's, {self._codec}", self._right.total())
        if self._wrong:
            videos = sorted(self._right | self._wrong)
            counts = ", ".join(
                f"{self._wrong[each]} of {self._wrong[each] + self._right[each]} of {each}" for each in videos
            )
            raise RuntimeError(f"wrong are {counts}. {self._listed[0]}")

    def _list(self, request: str) -> None:
        if len(self._listed) < _MOST_LISTED:
            first, *others = self._found
            # How a picture differs is long: of the others it is only said what they show.
            short = [wrong.partition(". ")[0] for wrong in others[:_MOST_NAMED]]
            more = [f"{len(others) - _MOST_NAMED} more"] if len(others) > _MOST_NAMED else []
            self._listed.append(f"{request}: {'; '.join([first, *short, *more])}")
            self._record.figure(f"wrong pictures, {self._codec}", self._listed)


def layout_of(planes: Planes) -> str:
    """Such as "960x530, lines of 1024 bytes, chroma 544 lines behind luma"."""
    (height, width), size = planes.y.shape, planes.y.element_size()
    luma, chroma = planes.y.stride(0) * size, planes.uv.stride(0) * size
    lines = (planes.uv.data_ptr() - planes.y.data_ptr()) / luma
    pitch = f"{luma}" if luma == chroma else f"{luma} and {chroma}"
    return f"{width}x{height}, lines of {pitch} bytes, chroma {lines:g} lines behind luma"
