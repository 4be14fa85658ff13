"""Many sources become a dataset. This room and `ray_data` know Ray. Start at `prepare`.

named_options               `shortgop.prepare`: the options of a job by their names
source                      one video to prepare, where it was named, and whether two finds are one
sources, places, ids        which videos a job is about, and their ids
video_names                 which files of a folder are videos
walking                     folders of this machine, and globs in them
addresses, store_files, fetched_sources  sources in stores: URLs, what lies there, and their local files
source_parts, source_files  sources that are part of a file, or folders of pictures
importing, importers        datasets of other tools
lists, list_lines, column_types  lists of sources: their rows, the lines of each kind of file, and the types of columns
labels                      columns that lists set, in a job or by themselves
identity                    whether a file is the one that was prepared
source_listing              which sources are found before anything is encoded, and which meanwhile
source_table, source_columns, windows  all sources of a job, and those that are planned at a time
look, changed               what the files are now, and what to do if they are not what was prepared
how                         the settings of a job
survey, deciding            what has to be known of sources before anything is encoded, and what is to be done
planning, ahead, encoding   the units of a window, planned while those of other windows are encoded
units, work                 the plan of units, and one unit of work
steps, order                a long video in sections: what each task does, and which follows
waiting, costs              which step starts next, and what steps took of what was expected of them
second_attempts, unheard    which steps run, and which of them are attempted twice
task_memory                 how much memory a unit may take
where, gpu_slots, running   where units run, and how their results are published
ray_runner, ray_entry, ray_worker, ray_tasks, rooms, ray_looks, progress_boards, ray_metrics  units on a cluster
ray_connection, ray_login, ray_first_driver, cluster_address, asking, shared_files  joining a cluster, and what it has
tally, encoding_time, time_left, job_status, job_history, outcome  how far a job is, also over time; its report
node_rates, node_work       what each machine does and has done
failing                     when failures end a job, and which sources are set aside
gpu_readable                which videos no GPU decodes
known_failures, known_paths  what failed before; files that the dataset has under other ids
"""
