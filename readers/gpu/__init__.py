"""Surfaces of a GPU's decoder become slots of a batch, with the numbers that the CPU reader gives. Start at
`surface_conversion`.

surface_conversion  many surfaces into their slots, by Triton or by torch
surfaces            what a decoder gives: planes of NV12 or P010, with their colours
conversion_plan     which filters and which formula make of a frame what was asked for
filter_taps         libswscale's filters of one axis, as integers
color_factors       libswscale's integers for a matrix and a range
torch_conversion    a surface into a slot, in plain torch
triton_conversion   many surfaces in one launch
triton_kernel       the kernel: the one module that needs Triton to be imported
"""
