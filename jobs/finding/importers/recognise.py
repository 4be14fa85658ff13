"""Which importer reads an argument of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from ....errors import UsageError
from ..importing import Importing
from ..list_lines import is_list
from ..source_lists import Row
from ..source_parts import Imported, PictureRows, Recognised
from ..video_names import is_tar_name
from .images import folders_of_images, is_image_name, list_of_images
from .kinetics import is_kinetics, rows_of
from .lerobot import episodes_of, is_lerobot
from .webdataset import samples_of


def recognised(path: Path, importing: Importing, read: Callable[[str], Iterable[Row]]) -> Recognised | None:
    """The sources that a file or folder of another tool's format stands for; None for any other file or folder. `read`
    reads the rows of a list."""
    if path.is_dir():
        return _without_image_fps(episodes_of(path), importing) if is_lerobot(path) else None
    if is_tar_name(path.name):
        return samples_of(path, importing)
    if is_kinetics(path):
        return rows_of(path, importing.list_root)
    if importing.image_fps is not None and is_list(path.name):
        return list_of_images(path, read(str(path)), importing.image_fps, importing.list_root)
    return None


def _without_image_fps(found: Recognised, importing: Importing) -> Recognised:
    """A LeRobot dataset, of which the job says where its rate is not the one that is given."""
    rates = {each.part.fps for each in found.sources if isinstance(each.part, PictureRows)}
    if importing.image_fps is None or rates <= {importing.image_fps}:
        return found
    return replace(
        found, what=f"{found.what}; its pictures have its own rate, {min(rates)}, and not that of --image-fps"
    )


def inside(
    top: Path, walked: Iterable[tuple[Path, list[str]]], importing: Importing, *, has_videos: bool
) -> list[Imported]:
    """The sources in a folder besides its video files: with `--image-fps` its folders of pictures, and if there is
    neither a video nor such a folder, its WebDataset tars.

    UsageError for a folder that holds pictures and no videos where `--image-fps` is missing.
    """
    if has_videos and importing.image_fps is None:
        return []
    folders = list(walked)
    if importing.image_fps is not None:
        found = folders_of_images(top, folders, importing.image_fps)
        if found or has_videos:
            return found
    sources: list[Imported] = []
    for folder, files in folders:
        for name in sorted(files):
            if is_tar_name(name):
                tar = samples_of(folder / name, importing)
                importing.tell(f"{folder / name}: {tar.what}")
                sources += tar.sources
    if not sources and any(is_image_name(name) for _, files in folders for name in files):
        raise UsageError(
            f"the folder {str(top)!r} holds pictures and no videos; give their rate with --image-fps, such as "
            "--image-fps 30, to make a video of each folder of numbered pictures (for a video of each picture "
            "give, with --image-fps, a list that has an id for each)",
            file=str(top),
        )
    return sources
