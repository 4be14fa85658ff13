"""What a job consists of: units of work, the steps in which they are done, and in which order. All is pure, and knows
nothing of where steps run. Start at `units`.

units, unit_results         the plan of units, and what becomes of one
steps                       a unit at once, or a long video in sections: what is done in one go
order, waiting, costs       which step starts next, and what steps took of what was expected of them
windows                     the sources that are planned at a time
task_memory, gpu_slots      how much memory a unit may take, and how many units run at a time
where, cluster_address      the setting that says where units run
"""
