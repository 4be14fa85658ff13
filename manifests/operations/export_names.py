"""What the files of exported videos are called: their ids below a folder. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .export import SUFFIXES

# What the file systems of Linux allow for the name of a file.
_MOST_BYTES = 255
_ALONE = "export it by itself, to a file of another name"


def names_of_exports(ids: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The path of each video's file below the folder, by id, and why there is none of the others.

    A path is the id without empty parts, as of `/data/a.mp4` or `s3://bucket/a.mp4`, and with `.mp4` at its end unless
    the id has that. So only links there lead out of the folder. Of ids with the same path the first one gets it, and
    none gets a path that is a folder of another.
    """
    names: dict[str, str] = {}
    refused: dict[str, str] = {}
    id_of_name: dict[str, str] = {}
    for video_id in ids:
        parts = [part for part in video_id.split("/") if part] or [""]
        last = parts[-1] if parts[-1].lower().endswith(SUFFIXES) else f"{parts[-1]}.mp4"
        name = "/".join([*parts[:-1], last])
        wrong = next((part for part in (*parts, last) if _is_no_name(part)), None)
        if wrong is not None:
            refused[video_id] = f"{wrong[:40]!r} cannot be the name of a file or folder; {_ALONE}"
        elif (other := id_of_name.setdefault(name, video_id)) != video_id:
            refused[video_id] = f"its file would be {name}, which is that of {other!r}; {_ALONE}"
        else:
            names[video_id] = name
    folders: set[str] = set()
    for name in names.values():
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    for video_id, name in list(names.items()):
        if name in folders:
            del names[video_id]
            refused[video_id] = f"its file would be {name}, which is a folder of other videos; {_ALONE}"
    return names, refused


def _is_no_name(part: str) -> bool:
    return part in {"", ".", ".."} or "\0" in part or len(part.encode(errors="surrogatepass")) > _MOST_BYTES
