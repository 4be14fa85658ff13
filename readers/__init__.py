"""Frame numbers become tensors. This room knows torch and the decoders, and nothing of prep or Ray. Start at `reader`.

open_dataset                  `shortgop.open`
dataset, video, frames, metadata, stats  what users see: a dataset, its videos, frames and batches
columns, conditions, chosen, table, checked_ids  what is known of all videos, and datasets of some of them
indices, times, memory_limit  what a request asks for, and whether it can fit into memory
plan                          what to decode and what to read: pure functions
gops                          the bytes of GOPs, fetched and checked
fetching, read_limits         from a store: several at once, ahead of the decoder, through the local cache
store_options, cache_filling  the options of `open` for stores; filling the cache beforehand
decoders, convert             bytes to frames, frames to slots of a batch
gpu                           the same slots from the surfaces of a decoder on a GPU
frame_format, frame_shapes, clip_output, nearest_samples  what frames are converted to
output_tensors, memory_pool, workers  the tensors that frames are written to, their memory, and threads
sheet, picture_files          contact sheets and other pictures as files
decoder_trial, decode_check   what `doctor` tries, and what `verify --decode` decodes
"""
