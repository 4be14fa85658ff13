"""What decodes, scales and encodes on this machine: tried, and chosen. Start at `tool_choice`.

capabilities, capability_trials  what runs here, and how that is tried
pipelines, gpu_filters      which steps run on a GPU for a source, and the filters of those
encoder_options             the options of each encoder
tool_choice                 the ffmpeg and the pipelines of a job
nvdec_sizes                 which sizes NVDEC takes
doctor                      all of that, to be shown
"""
