"""The Datasets that training code uses. Start at `clip_dataset`.

clip_dataset, mixed           ClipDataset reads clips, in any worker; MixedClips are several of these as one
drawn_items                   what both have in common: items by draws, and subclasses with items of their own
reading_options               what ClipDataset passes on to `shortgop.open`
shared, ranks                 numbers that the processes of a loader share, and the ranks of a training run
unreadable                    other clips in place of those that cannot be read
repetition, drawn_from        what goes wrong: clips that are read again and again, and draws of another dataset
callers                       who asks, by the frames of the callers
"""
