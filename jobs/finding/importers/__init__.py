"""Sources that are more than files: what a folder or a file of another tool's format stands for.

`recognise.py` says which importer reads an argument. Each importer turns it into `Imported` sources:

- `lerobot.py`: the episodes of a LeRobot dataset, each camera a video
- `picture_rows.py`: the pictures of an episode that lie in a Parquet file
- `webdataset.py`: the samples with videos in WebDataset tars
- `kinetics.py`: lists with the columns of Kinetics
- `images.py`: folders and lists of numbered pictures

`in_stores.py` is `recognise.py` for URLs.
"""
