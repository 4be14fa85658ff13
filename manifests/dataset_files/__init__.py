"""The files of a dataset, and their life. Start at `layout`.

layout                      the keys of a dataset's files, and which are there
root_file, missing_root     the root: how it is read and changed, and what to say where it is missing
parts, sections             the results of one unit of work, and of a section of a long video
publish                     parts become a snapshot
snapshots, snapshot_files, snapshot_columns  how a snapshot is opened: its tables, its file, its label columns
video_columns               all columns over the videos of a snapshot
in_place                    the lock of commands that change a dataset where it is
tidy                        removal of what nobody needs
aside                       a damaged file that is kept under another name
in_order                    work on many files, several at once in a store
"""
