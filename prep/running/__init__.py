"""Programs that run beside this one. Only `processes` starts one. Start at `ffmpeg`.

processes                   start a program, end it with all that it started
ordinary_priority           start it so that it cannot put itself above all else on the machine
driver_folder               where a driver lies that the loader does not find
stalls, mounts              programs that do nothing any more; mounts that do not answer
ffmpeg, frame_report        run ffmpeg; which frames it says it encoded
trial_runs                  run ffmpeg for what it says of itself, and again if it was ended
attempts, gpu_errors        run it again if it was ended; what it says where a GPU fails
"""
