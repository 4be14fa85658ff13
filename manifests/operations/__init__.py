"""What is done with a whole dataset.

verify                      whether shards are as they must be
snapshot_check, column_check, problem  whether snapshots and columns are; what checks find
export, export_many, export_names  a video as an ordinary MP4; many, and what their files are called
summary, history            what a dataset holds, and what it held
annotate, column_changes    columns of videos set or removed; what that did to the columns as a whole
drop                        videos taken out
collect, rewrite            removal of what is no longer needed, also from within shards
compact                     small shards and layers put together
copying, copy_plan          videos copied to another dataset
rollback                    a dataset as it was
recovery, lost_root         a lost or damaged snapshot, made again of the parts; a lost zarr.json
lost                        lost shards, and the videos in them
moving                      segments written into other shards
shard_bytes, stored_bytes   pieces of shards; how many bytes the rows of a manifest stand for
output_files                files at paths that the user chose
"""
