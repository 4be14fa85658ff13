"""What is done to pictures. Start at `picture_filters`.

sizes                       how large they become
picture_filters             ffmpeg's filters for that
picture_check               refuses sources whose pictures this ffmpeg cannot convert
"""
