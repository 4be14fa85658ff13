"""Bytes in files and objects: a disk, or a bucket. This room knows nothing of video.

interface                     what the rest of the product asks of a place: `Storage`
locate                        which storage a path or a URL means
disk, open_files, disk_lock   files in a folder
range_cache                   ranges of objects, kept on a local disk for all processes of a host
"""
