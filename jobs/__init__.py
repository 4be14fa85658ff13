"""Many sources become a dataset. Start at `prepare`, which says what a job does from its beginning to its end.

finding                     which videos a job is about, wherever they lie: knows nothing of what follows
cluster                     units on Ray: the only room here that knows it; `ray_data` knows it, too
progress                    how far a job is

named_options               `shortgop.prepare`: the options of a job by their names
how, where, cluster_address  the settings of a job, and where its units run
preflight, dataset_profile  what is tried before anything is written, and by which profile videos are encoded
source_listing              which sources are found before anything is encoded, and which meanwhile
source_table, source_columns, temporary_database  all sources of a job, as many as there are
windows                     the sources that are planned at a time
look, where_to_look         what the files are now, found out here or on the machines of a cluster
changed, files_before       what to do if they are not what was prepared
listed_columns, labels      columns that lists set: in a job, or by themselves (`shortgop.annotate`)
survey, deciding            what has to be known of sources before anything is encoded, and what is to be done
encoding, running           the main thread: runs the units of a window while others are planned, and publishes results
window_plans, ahead         the thread that plans: looks at the sources of the windows that follow
planning                    the units of a window, and what becomes of its sources
units                       the plan of units of work
steps, order                a unit at once, or a long video in sections: what tasks do, and which follows
work, step_work, unit_results  what a worker does of a unit and of a step, and what it reports
waiting, costs              which step starts next, and what steps took of what was expected of them
second_attempts, unheard    which steps run, and which of them are attempted twice
task_memory, gpu_slots      how much memory a unit may take, and how many units run at a time
outcome, job_report         the report of a job
failing                     when failures end a job, and which sources are set aside
gpu_readable                which videos no GPU decodes
known_failures, known_paths  what failed before; files that the dataset has under other ids
"""
