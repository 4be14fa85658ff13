"""Many sources become a dataset. This room and `ray_data` know Ray. Start at `prepare`.

sources, lists, column_types, places, identity  which videos a job is about, and whether a file is the one that was
                            prepared
labels                      columns that lists set, in a job or by themselves
units, work                 the plan of units, and one unit of work
ray_runner, ray_login, cluster_address, shared_files  units on a cluster
tally                       how far a job is
known_failures, repair      what failed before, and what was lost
"""
