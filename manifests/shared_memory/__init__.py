"""Arrays that are filled piece by piece, and tables that processes share. Start at `host_copies`.

new_arrays, scratch_arrays  arrays that are filled piece by piece, in memory or in a file without a name
mapped_tables, shared_tables  tables in memory that processes share
host_copies                 the tables of a large snapshot, decoded once for all processes of a host
"""
