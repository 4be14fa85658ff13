"""Which clips a dataset has, and which frames each has: pure functions of tables, without pixels. Start at `policies`.

policies, clips_by, clip_table, stretches  what users say of clips
placed_clips, counterparts, offsets, ends  what policies have in common
own_values                     copies of what users give, which they may change later
policy_index                   from these to an index of clips
clips, joined, segments, table_index  the indices: from a draw to a video and its frames
draws, keyed                   the integers that stand for items, and random numbers that are functions of a key
starts, clip_reach, references  where a clip may start, how far it reaches, and which frames others refer to
video_table, running_counts    the videos that clips are taken from, and which of them has the n-th clip
mixing                         the clips of several datasets as one row of numbers
"""
