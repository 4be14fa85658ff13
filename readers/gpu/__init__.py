"""What decoding on a GPU takes, below the decoders. Nothing here imports PyAV.

A decoder's surfaces become slots of a batch, with the numbers that the CPU reader gives:

surface_conversion  many surfaces into their slots, by Triton or by torch: start here
surfaces            what a decoder gives: planes of NV12 or P010, with their colours
conversion_plan     which filters and which formula make of a frame what was asked for
filter_taps         libswscale's filters of one axis, as integers
color_factors       libswscale's integers for a matrix and a range
torch_conversion    a surface into a slot, in plain torch
triton_conversion   many surfaces in one launch
host_numbers        numbers of the host on a device, for which nothing waits
triton_kernel       the kernel: the one module that needs Triton to be imported

Decoders of a GPU, and the order of its work:

stream_order        what waits for what, so that nothing is read too early or written too late: start here
torch_streams       the calls for that, through torch
decoder_pool        open decoders, for all threads of a process
mapped_surfaces     surfaces that a decoder lends, until they have been read
annex_b             a GOP as NVDEC's own parser reads it
nvcuvid             the calls of libnvcuvid; its structures are in nvcuvid_structs
torch_memory        a surface of libnvcuvid as a tensor, and events behind what reads it
dlpack              tensors in memory that is there already
nvdec_caps          what NVDEC decodes, and why not
stream_format       bits and chroma of a stream
cuda_driver         the driver's libraries, and which CUDA context a thread has
"""
