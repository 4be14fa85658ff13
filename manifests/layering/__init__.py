"""Snapshots in layers: the newest ones hold only the rows that came since. Start at `layers`.

layers                      what a snapshot and the older ones that it names say together
growth                      what a new snapshot holds
layer_tables, layer_blocks  the tables of one layer, and their rows a block at a time
interleaving, row_runs      how the rows of layers are put together
layered_columns             what layers say of label columns
layer_check                 whether layers give the rows that merging them gives
"""
