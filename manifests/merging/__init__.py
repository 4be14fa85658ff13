"""Tables that become one. Start at `merge`.

merge                       what parts say, put together
folding                     very many parts, in bounded memory
frame_runs                  where the rows of a timeline come from that is put together from several
edits                       corrections and drops, and how they are merged
"""
