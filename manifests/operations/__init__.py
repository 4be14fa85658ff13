"""What is done with a whole dataset.

verify, snapshot_check, column_check, problem  whether shards, snapshots and columns are as they must be, and what is
                            found
export                      a video as an ordinary MP4
summary, history            what a dataset holds, and what it held
annotate, column_changes, drop  columns that are set, what that did to them as a whole, and videos that are taken out
collect, rewrite            removal of what is no longer needed, also from within shards
compact                     small shards and layers put together
copying, copy_plan          videos copied to another dataset
rollback                    a dataset as it was
recovery, lost_root         a lost or damaged snapshot, made again of the parts, and a lost zarr.json
lost                        lost shards, and the videos in them
moving, shard_bytes, stored_bytes  segments written into other shards, pieces of shards, and how much rows stand for
output_files                files at paths that the user chose
"""
