"""What a source is, by its headers, packets and first frames. Start at `probe`.

headers                     what the headers of packets say, codec by codec
containers                  what files say that PyAV does not tell, and what FFmpeg does not read of them

opening, playlists          open a source as one file
pyav_version                the release of PyAV that sources are read with
probe, source_video         what its headers, packets and first frames say, all together
probed_frames, picture      what its pictures are, by a few frames that are decoded
codec_names                 the name of its codec, whatever decodes it
picture_properties          what may be said of them; without PyAV
header_estimate             about how large it is, before it is read
still_pictures              sources that are one picture
packet_times                when frames are shown, by the times of packets
edited_times                the times of MP4s with several edits, where FFmpeg does not follow these
bursts                      frames that arrived several at once
other_beginnings, listed_parts  later recordings in a file, and parts of a list of files, that FFmpeg decodes with the
                            parameters of the first
recordings                  where recordings that were joined start
signs, holes                signs of damage: in packets and headers, and as holes in times
"""
