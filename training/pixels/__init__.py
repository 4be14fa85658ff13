"""What the frames of clips become: tensors, crops, outputs, transforms. Start at `clip_pixels`.

opened                        a dataset that was opened: its tables, and the one place that uses its reader
clip_pixels                   the pixels of clips, as the dataset was opened or as outputs have them
outputs, random_crops         one output: what it makes of a clip's frames, and its random parts of them
named_outputs                 all outputs of a dataset
transforms                    the user's transforms, with random numbers that are those of the draw
rows                          tensors that exist already, which clips are read into
"""
