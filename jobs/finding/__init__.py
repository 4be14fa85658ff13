"""Which videos a job is about, wherever they lie. Knows nothing of units and of Ray. Start at `sources`.

source                      one video to prepare, where it was named, and whether two finds are one
sources, ids                the sources that arguments stand for, and their ids
disk_sources, store_sources, listed_sources  of paths and globs, of URLs, and of the rows of lists
places                      paths that mean the same wherever a unit runs
video_names                 which files of a folder are videos
other_files                 what lies in a folder without videos, for a message
walking                     folders of this machine, and globs in them
addresses, store_files, fetched_sources  sources in stores: URLs, what lies there, and their local files
source_parts, source_files  sources that are part of a file, or folders of pictures
importing, importers        datasets of other tools
source_lists, label_lists   lists of sources and of labels
lists_beside                labels in a folder that is given, which stands for its video files alone
files_beside                columns from files beside videos, and from those of samples in tars
typed_lines, line_values, list_lines, column_types  what both are made of: lines with values by the types of columns,
                            what a line says, the lines of each kind of file, and the types
plain_values                values as manifests store them
identity                    whether a file is the one that was prepared
"""
