"""What files say that PyAV does not tell, and what FFmpeg leaves out without a message. Start at `unread`.

unread                      video that FFmpeg does not read, in any kind of file
sample_entry, edit_list, track_cut, mp4_fragments, reference_movies  MP4 and QuickTime
matroska_elements, ordered_chapters  Matroska
dolby_vision, container_crop  what both of these may state
transport_packets, programs  transport streams: what is missing, and what they show besides the stream that is read
chains, next_file           whether the parts of a file follow each other, and another file behind the first
cut_end, zero_tail          files that end before their end, or in zeros
joined_files                several files that are read as one
taking_apart                the commands that take a file of several apart
file_kinds                  what a file is that is no video
searching                   bytes searched for in all of a file, and positions that damage may put anywhere
"""
