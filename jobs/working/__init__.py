"""What is done of a step, and which steps run. Start at `work`.

work, step_work             what a worker does of a unit and of a step
second_attempts, unheard    which steps run, which of them are attempted twice, and of which no word comes
"""
