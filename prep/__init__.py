"""One source becomes segments. This room knows ffmpeg and PyAV, and nothing of readers or Ray. Start at `encode`.

options, profile            what the user chooses
opening, playlists, mounts  a source is opened as the one file that it is, and a dead mount is found out
probe, picture, picture_check, clean_aperture  what a source says of itself, and its first frames
signs, scan, chains, access_units, damage, salvage  what is wrong with a source, and what can be saved
source_times, rates, grid   which source frame is shown at each tick
sizes, picture_filters, command, encoders  the ffmpeg command
ffmpeg, processes, stalls   running it
frame_report, fragments     what ffmpeg says it encoded, held against the plan; its output in GOPs
shards, manifest_rows, given_up  what is stored, and what differs from the source
doctor                      what runs on this machine
"""
