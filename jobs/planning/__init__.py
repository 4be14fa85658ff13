"""What a job has to do. Start at `deciding`.

how                         the settings of a job
survey, deciding            what has to be known of sources before anything is encoded, and what is to be done
window_plans, ahead         the thread that plans: looks at the sources of the windows that follow
planning                    the units of a window, and what becomes of its sources
gpu_readable                which videos no GPU decodes
"""
