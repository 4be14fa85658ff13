"""What other libraries call the parameters of policies, and what these are here."""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import Any, TypeVar

from ...errors import WrongTypeError

_Policy = TypeVar("_Policy")

# Of TorchCodec, torchvision, PyTorchVideo, mmaction2, DALI and VideoMAE.
_COUNTERPARTS = {
    **dict.fromkeys(
        (
            *("clip_len", "clip_length", "clip_length_in_frames", "frames_per_clip", "num_frames_per_clip"),
            "sequence_length",
        ),
        "num_frames",
    ),
    **dict.fromkeys(("frame_interval", "frame_step", "sampling_rate", "num_indices_between_frames"), "stride"),
    **dict.fromkeys(("frame_rate", "target_fps", "clip_duration", "duration", "seconds_between_frames"), "fps"),
    **dict.fromkeys(("num_clips", "num_segments", "max_clips_per_video"), "clips_per_video"),
    **dict.fromkeys(("out_of_bound_opt", "policy", "pad", "pad_mode"), "ends"),
    "frames_between_clips": "step",
    "seconds_between_clip_starts": "step_seconds",
    "temporal_jitter": "jitter",
}


def names_counterparts(policy: type[_Policy]) -> type[_Policy]:
    """Make a policy, a dataclass, refuse parameters that it does not have with the name that there is here.
    WrongTypeError, which is a TypeError as Python's own is."""
    changed: Any = policy
    made, names = changed.__init__, [field.name for field in fields(changed)]

    @functools.wraps(made)
    def checked(self: _Policy, *args: Any, **named: Any) -> None:
        for name in named:
            if name not in names:
                own = _COUNTERPARTS.get(name)
                here = f"here it is {own}" if own in names else f"it has {', '.join(names) or 'none'}"
                raise WrongTypeError(f"{policy.__name__} has no parameter {name!r}: {here}")
        made(self, *args, **named)

    changed.__init__ = checked
    return policy
