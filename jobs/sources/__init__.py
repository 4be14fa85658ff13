"""All sources of a job, as many as there are, and what is known of each. Start at `source_table`.

source_listing              which sources are found before anything is encoded, and which meanwhile
source_table, source_columns, temporary_database  where all of them are kept
look, where_to_look         what the files are now, found out here or on the machines of a cluster
changed, files_before       what to do if they are not what was prepared
listed_columns, labels      columns that lists set: in a job, or by themselves (`shortgop.annotate`)
known_failures, known_paths  what failed before; files that the dataset has under other ids
failing                     when failures end a job, and which sources are set aside
"""
