"""What the headers of packets say, found without decoding. Start at `access_units`.

access_units                where a decoder may start, and whether a packet is missing
gif_blocks                  whether a picture of a GIF is cut off
h264_sps, mpeg4_headers     parameters of H.264 and of MPEG-4
h264_references             to which earlier frames those of H.264 may refer
nal_units                   packets of H.264 and HEVC, taken apart
hevc_end                    HEVC that ends within a picture
picture_ends                whether the last picture of a stream lacks its end
padded_packets              packets made of bytes, for decoders
motion_jpeg                 pictures that lack an end, and what the lines between those of a web camera say
stated_rates                raw streams whose headers state another rate further on
"""
