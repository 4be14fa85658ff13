"""A job's steps on a Ray cluster. No other room of `jobs` knows Ray. Start at `ray_runner`.

ray_runner                  gives steps to Ray, and takes their outcomes
ray_tasks                   the tasks that run, and what waits to be one
cluster_machines, rooms     the machines that there are, and those that lack room for a source
ray_worker, ray_entry       a step in a worker, and the first code there
ray_looks                   looking at sources in workers
progress_boards, ray_metrics  what workers report
ray_connection, asking      joining a cluster, and what it has
ray_login, ray_first_driver  who may join, and joining a node as its first driver
ray_start                   a Ray that is started for the job
shared_files                whether all machines see the same files
"""
