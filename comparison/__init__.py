"""`shortgop bench`: a dataset read at random beside other libraries on its sources. Start at `measure`.

accesses, files, tasks  what is read, from which files, by which calls
peers                   the other libraries, each as its own documentation advises
timing, estimates       request by request in turn, and what the times say
report, chart, machine  tables, charts, and what they were measured on
"""
