"""How tables are stored. Knows nothing of a dataset's keys. Start at `zarr_read`.

zarr_read, zarr_write       tables as Zarr arrays
zarr_arrays                 such arrays, read without the zarr library
zarr_small                  small ones, written without the zarr library
zarr_columns                where the arrays of label columns lie, and how they are read
zarr_sizes                  how arrays are cut into chunks and files, and how they are compressed
zarr_zip, zip_bytes         many arrays in one zip file, of which pieces are read
fetched_columns             which columns of a snapshot in a store are fetched together
"""
