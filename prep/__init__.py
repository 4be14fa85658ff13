"""Turn one source into segments. This package uses ffmpeg and PyAV, not the readers or Ray. Start at `encode`.

options, profile            what the user chooses
opening, playlists, mounts  open a source as one file; detect a mount that does not answer
part_of_file                stretches of an MP4 of which only a part is fetched
probe, picture, picture_check, clean_aperture, pixel_crop, container_crop  what its headers and first frames say
still_pictures              sources that are one picture
signs, scan, complaints, chains, damage, holes, kept, salvage, joins  which frames are damaged, and which are kept
access_units, h264_sps      what the headers of its packets say
source_times, rates, grid   which source frame each tick shows
sizes, picture_filters, encoder_options, expressions, command  the ffmpeg command
picture_quality             how close encoded frames are to their source
capabilities, capability_trials, pipelines, tool_choice  what decodes, scales and encodes: tried, and chosen
gpu_filters, gpu_attempts, gpu_errors  frames that stay on a GPU, and what the CPU does where a GPU fails
encode_cuts, pieces, stretch  stretches of a source as videos of their own
encode_sections, section_plan  a long source in sections, by several workers
encode_run, ffmpeg, processes, stalls, attempts  run ffmpeg, and again if it was ended
trial_runs                  run ffmpeg for what it says of itself, and again if it was ended
frame_report, fragments     which frames ffmpeg encoded, for the comparison with the plan; its output in GOPs
shards, manifest_rows, given_up  what is stored, and how it differs from the source
doctor, nvdec_sizes         which encoders and decoders run on this machine; which sizes NVDEC takes
"""
