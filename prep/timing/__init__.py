"""Which source frame each tick shows. Start at `grid`.

source_times, rates         the times of a source's frames, and its frame rate
mended_times                times of FFmpeg that are known to be wrong, put right
stated_times                the times of streams that state those of some frames only
rising_times                times of which some do not rise
straight_times              the times of a constant rate of which some are wrong
grid                        the frame of each tick
stretch, pieces             a stretch of a source that becomes a video, and several of them in one run of ffmpeg
tick_filters, expressions   such choices in the language of ffmpeg's filters
"""
