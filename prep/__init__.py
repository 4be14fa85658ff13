"""Turn one source into segments. This package uses ffmpeg and PyAV, not the readers or Ray. Start at `encode`.

The rooms, each of which uses those above it:

running       run ffmpeg and other programs: watched, ended, and run again
probing       open a source, and find what its headers and packets say
kept_frames   which frames are damaged, and which are kept
timing        which source frame each tick shows
pictures      sizes and filters
tools         what decodes, scales and encodes: tried, and chosen

options, profile            what the user chooses
encode, encode_run          a source from its path to its rows, and one run of ffmpeg for it
decoding                    what only decoding says of a source: when frames are shown, and which are damaged
stated_twice                what headers and container both say, on which ffmpeg fails
command                     the ffmpeg command
encode_cuts, part_of_file   stretches of a source as videos of their own, of MP4s of which only a part is fetched too
section_survey, section_plan  where a long source is cut into sections
encode_sections             each of them, by one of several workers
gpu_attempts                what the CPU does where a GPU fails
shards, manifest_rows, given_up  what is stored, and how it differs from the source
picture_quality             how close encoded frames are to their source
"""
