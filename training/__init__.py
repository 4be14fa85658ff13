"""A dataset becomes clips for a training run. This room knows torch and the readers. Start at `clip_dataset`.

draws                          the integers that stand for items, and what a sampler says of them
policies, counterparts, placed_clips, offsets, ends  what users say of clips: the policies, and what these have in
                               common
clips, starts, references, clip_reach, table_index, segments, clips_by, joined  which clips there are then, and which
                               frames each has: pure functions
video_table, stretches, running_counts  the videos, or stretches of them, that clips are taken from, and which of them
                               has the n-th clip
keyed                          random numbers that are functions of a key
orders, class_batches, class_labels, weights, mixing, slices, ranks, sampler, sampler_states  in which order clips come,
                               and the sampler that deals them to ranks
buckets, bucket_sampler, kept_buckets  the same for batches of which each is of one of several datasets
drawn_from, out_of_order       what goes wrong between a sampler and a DataLoader: other clips, another order
outputs, random_crops, named_outputs  what the frames of a clip become: one output, its random crops, and all
                               outputs of a dataset
reading_options                what ClipDataset passes on to `shortgop.open`
clip_dataset, clip_pixels, policy_index, opened, rows, shared, transforms, unreadable, repetition  the Dataset: reads
                               clips, in any worker
drawn_items                    what it has in common with MixedClips: items by draws, and subclasses with items of
                               their own
loader                         ClipLoader: workers that read clips into batches in shared memory
robot_clips, robot_rows, robot_cameras  LeRobot datasets: cameras, states and actions at times around each frame
clip_table, mixed, own_values  clips that were written down, and several datasets as one; copies of what users give
effective                      what chunks of neighbours do to a batch
"""
