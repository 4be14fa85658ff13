"""The profile of a dataset, by which all of its videos are encoded: the first video binds it."""

from __future__ import annotations

from ..errors import UsageError
from ..manifests.dataset_files import root_file
from ..manifests.dataset_files.publish import latest_root, publish, unpublished
from ..manifests.dataset_files.snapshots import open_manifest
from ..manifests.shared_memory.host_copies import copies_in
from ..prep.profile import Profile, profile_from_json
from ..storage.interface import Storage


def existing_profile(out: Storage) -> Profile | None:
    """The profile of the dataset at `out`. None if there is no dataset, or if no video in it fixes the profile."""
    if not root_file.is_dataset(out):
        return None
    root = latest_root(out)
    bound = root.snapshot is not None and len(open_manifest(out, root.snapshot, copies=copies_in(None)).videos) > 0
    # A job that died may have left videos that no snapshot has yet.
    bound = bound or any(len(found.videos) for _, found in unpublished(out, root))
    return profile_from_json(root.profile) if bound else None


def begin_dataset(out: Storage, profile: Profile) -> None:
    """Make the dataset if there is none, and give it this profile. UsageError if its videos have another one.
    The caller holds the writer lock."""
    if not root_file.is_dataset(out):
        root_file.create(out, profile.to_json())
    # Finished parts of a job that died come first: a video among them decides the dataset's profile.
    publish(out)
    _bind(out, profile)


def _bind(out: Storage, profile: Profile) -> None:
    """Give a dataset without videos this profile. UsageError if a dataset with videos has another one."""
    if not refuse_other_profile(out, profile):
        root_file.set_profile(out, profile.to_json())


def refuse_other_profile(out: Storage, profile: Profile) -> bool:
    """UsageError if there is a dataset with videos of another profile. Returns whether there is one with videos."""
    known = existing_profile(out)
    if known is not None and known != profile:
        differences = ", ".join(
            f"{name} {value} there and {profile.to_json()[name]} here"
            for name, value in known.to_json().items()
            if profile.to_json()[name] != value
        )
        raise UsageError(
            f"{out} was prepared with other options ({differences}); leave them out, or choose another --out"
        )
    return known is not None
