"""Decoded frames are written into slots of a batch. Start at `frame_writer`.

frame_writer  a frame into its slot: crop, size, colour and dtype
tiling        how to divide a frame so that libswscale writes every byte of a slot, and no other byte
planes        where the lines of planes lie in memory
swscale       the calls to libswscale
copies        copies without torch's threads
"""
