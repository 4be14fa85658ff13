"""Which frames are damaged, and which are kept. Start at `scan`.

scan, scanner, judged   look through a source: what the file says, packets and their frames, and what packets lack
scanned, complaints     what that says, and what decoders complain of
unmarked_entries        frames of H.264 at which a decoder may start although nothing says so
damage, kept            stretches that are damaged, and the frames that are kept
salvage                 what is done with a damaged source
joins                   sources that are put together from several
"""
