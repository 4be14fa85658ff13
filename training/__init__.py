"""A dataset becomes clips for a training run. This package knows torch and the readers. Start at `clip_dataset`.

The rooms, each of which uses those above it:

which_clips   which clips a dataset has, and which frames each has: arithmetic, without pixels
pixels        what the frames of clips become: tensors, crops, outputs, transforms
datasets      the Datasets that training code uses: ClipDataset and MixedClips
sampling      in which order clips come, and the samplers that deal them to ranks
robots        LeRobot datasets: cameras, states and actions at times around each frame
loader        ClipLoader: workers that read clips into batches in shared memory
"""
