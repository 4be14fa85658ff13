"""The dataset: its tables, its files and their life. Nothing here knows ffmpeg, torch or Ray.

Here lies the data model, which every room uses. Start at `tables`. The rooms, each of which uses those above it:

shared_memory               arrays filled piece by piece, and tables that processes share
zarr_files                  how tables are stored
merging                     tables put together, many parts in bounded memory; edits and drops
layering                    snapshots that hold only what is new
dataset_files               the files of a dataset and their life: keys, parts, snapshots, publishing, removal
operations                  what is done with a whole dataset: verify, export, copy, drop, collect, and so on

schema, tables, records, ragged  how columns are stored, tables, a row as plain values, columns of lists
row_of_id, chosen_ids       the rows of a table by their ids, and ids that are decoded when they are asked for
id_patterns, near_ids       ids that fit a pattern; ids that look like one that is missing, for messages
matching                    the rows that two manifests have of the same ids, and which are the same
stacking                    tables put below each other
label_columns, parsed_columns  what source lists say of all videos, as arrays; how these are made of JSON texts
mp4, av1, unit_kinds        what the bytes of a segment say
gop_check                   and what they must say
equal_contents, lacking     videos that hold the same, or lack frames
"""
