"""How far a job is: from what its units report to what `shortgop status` reads. Start at `tally`.

tally                       the sums
encoding_time, time_left    how fast a job encodes, and how long it will take
job_status, job_history     what a job writes of itself, also over time
status_board, status_file   what is known of a job that runs, and the file that says so
node_rates, node_work       what each machine does and has done
"""
