"""What a dataset is. This room knows nothing of ffmpeg, torch or Ray.

tables, records, ragged        the data model: tables of columns, a row as plain values, columns of lists
mp4, gop_check                 what the bytes of a segment say, and what they must say
zarr_read, zarr_write, zarr_small, zarr_sizes, zarr_zip  how tables are stored
layout, parts, merge, publish, tidy  the life of a dataset: paths and root, what a unit found, snapshots, removal
lost, verify, export, summary, output_files  what is done with a whole one
"""
