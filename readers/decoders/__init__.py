"""Decoders: what turns the packets of a GOP into frames in their slots.

base, gop_samples  what the reader expects of a decoder, and the packets that all of them send
pyav               on the CPU, by libavcodec through PyAV
visits             frame after frame of a GOP: where a context goes on
choose             which decoder reads a dataset on a device
device             on a GPU: open decoders from a pool, and the conversion there
surface_source     what `device` expects of a decoder that gives surfaces:
pyav_cuda          NVDEC through PyAV
nvcuvid_source     NVDEC through libnvcuvid itself
whose_error        whether the data or the GPU is to blame where NVDEC fails
pyav_upload        the CPU, for what NVDEC does not decode
"""
