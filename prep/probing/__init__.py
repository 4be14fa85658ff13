"""What a source is, by its headers, packets and first frames. Start at `probe`.

opening, playlists          open a source as one file
joined_files                reads several files as one
file_kinds                  what a file is that is no video
probe, source_video         what its headers, packets and first frames say, all together
probed_frames, picture      what its pictures are, by a few frames that are decoded
header_estimate             about how large it is, before it is read
clean_aperture, pixel_crop, container_crop  which part of its pictures is shown
sample_entry, matroska_elements, ordered_chapters, dolby_vision  what MP4 and Matroska say that PyAV does not tell
other_beginnings, listed_parts  later recordings in a file, and parts of a list of files, that FFmpeg decodes with the
                            parameters of the first
edit_list, edited_times     edits of an MP4, and their times where FFmpeg does not follow them
still_pictures              sources that are one picture
access_units, h264_sps, mpeg4_headers  what the headers of its packets say
packet_times, stated_rates  when frames are shown, by the times of packets, and by the rates that raw streams state
bursts                      frames that arrived several at once
recordings                  where recordings that were joined start
signs, chains, holes        signs of damage: in packets, between chunks of a file, and as holes in times
zero_tail                   files that end in zeros
seeking, searching          positions that damage may put anywhere, and bytes searched for in all of a file
hevc_end                    HEVC that ends within a picture
motion_jpeg                 pictures that lack an end, and what the lines between those of a web camera say
transport_packets, programs, cut_end  what is missing from a transport stream, what it shows besides the stream that is
                            read, and files that end before their end
unread, mp4_fragments, next_file  video that FFmpeg does not read
"""
