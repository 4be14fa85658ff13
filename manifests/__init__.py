"""The dataset: its tables, its files and their life. Nothing here knows ffmpeg, torch or Ray.

schema, tables, records, ragged  the data model: how columns are stored, tables, a row as plain values, columns of lists
row_of_id, chosen_ids          the rows of a table by their ids, and ids that are decoded when they are asked for
matching                       the rows that two manifests have of the same ids, and which are the same
mp4, gop_check                 what the bytes of a segment say, and what they must say
zarr_read, zarr_write, zarr_small, zarr_sizes, zarr_zip, zip_bytes  how tables are stored
shared_tables, mapped_tables   tables in memory that processes share
host_copies                    the tables of a large snapshot, decoded once for all processes of a host
label_columns, zarr_columns, video_columns  what source lists say of all videos, as arrays
stacking, merge, folding, frame_runs, edits  tables put together, many parts in bounded memory; edits and drops
layers, growth, layered_columns  snapshots that hold only what is new, and what they say with those below
layer_tables, interleaving, row_runs  how the rows of layers are put together
new_arrays, scratch_arrays     arrays that are filled piece by piece
layout, parts, sections, publish, tidy  the life of a dataset: keys and root, parts, publishing, removal
in_order                       work on many files, several at once in a store
snapshots, snapshot_files, snapshot_columns  how a snapshot is opened: its tables, its file, its label columns
fetched_columns                which columns of a snapshot in a store are fetched together
verify, layer_check, column_check, layer_blocks  whether bytes, layers and columns are as they must be
lost, export, summary, history, output_files  operations on a whole dataset
annotate, drop                 columns that are set, and videos that are taken out
equal_contents, lacking, shard_bytes  videos that hold the same, or lack frames; pieces of shards, checked
collect, rewrite, stored_bytes  removal of what is no longer needed, also from within shards
moving, compact, copying, copy_plan, rollback  videos moved to other shards and datasets, and back in time
"""
