"""Bytes in files and objects: a disk, or a bucket. This room knows nothing of video.

interface                     what the rest of the product asks of a place: `Storage`
locate                        which storage a path or a URL means
disk, open_files, disk_lock   files in a folder
objects                       objects in a bucket, or files of a web server; built from the others below
  read_bucket, bucket         single operations on objects: those that read, and beside them those that write
  opened_objects              objects that are read in pieces
  uploads, unfinished_uploads files that go up in parts, and the parts of unfinished ones
  copies_in_parts             what S3 does not copy in one request
  odd_keys                    listing keys that are no paths
  lease                       the lock of the one job that writes
  retrying, network           requests that are made again, and their limits and counts
  outages                     until when requests wait for a store that fails for minutes
  connections, object_errors  where credentials and endpoints come from; what obstore's errors mean
  hub                         repositories of the Hugging Face Hub
  scratch, this_process       temporary files on this host, and which process they belong to
local_copy                    a file of a store as a local file, of which only what is needed is fetched
network_folders               which folders other hosts may have too
range_cache                   ranges of objects, kept on a local disk for all processes of a host
  range_files, range_index    its files, and the index in SQLite of what they take
"""
