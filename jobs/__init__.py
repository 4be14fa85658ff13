"""Many sources become a dataset. Start at `prepare`, which says what a job does from its beginning to its end.

The rooms, each of which uses those above it alone:

finding                     which videos a job is about, wherever they lie: knows nothing of what follows
units_of_work               what a job consists of: units, their steps, in which order these go, and where
sources                     all sources of a job, what is known of each, and what lists say of them
working                     what a worker does of a step, and which steps run
progress                    how far a job is
cluster                     units on Ray: the only room here that knows it; `ray_data` knows it, too
planning                    what has to be done, window by window

named_options               `shortgop.prepare`: the options of a job by their names
preflight, dataset_profile  what is tried before anything is written, and by which profile videos are encoded
encoding, running           the main thread: runs the units of a window while others are planned, and publishes results
outcome, job_report         the report of a job
dry_run                     the report of a job that is not run
"""
