"""Which frames are damaged, and which are kept. Start at `scan`.

scan, scanned, complaints   look through a source, what that says, and what decoders complain of
damage, kept                stretches that are damaged, and the frames that are kept
salvage                     what is done with a damaged source
joins                       sources that are put together from several
"""
