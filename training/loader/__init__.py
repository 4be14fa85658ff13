"""ClipLoader: worker processes that read clips straight into batches in shared memory. Start at `clip_loader`.

sampled_batches  which clips each batch has: by a sampler that plans whole batches, or any other
read_units  which clips a worker reads together, and where in which batches they go: pure functions
batch_rows  what items consist of, and where each part lies in memory
batch       what the training loop gets
batch_memory  how much memory batches may take
machine_share  how many ranks share the machine, and the CPUs that one has
arena       the shared memory, and which batches of it are free, being filled, or in the consumer's hands
pool        starts workers, gives them units, notices when one dies; `in_process` is the same without processes
worker      what a worker process does
notebook    refuses what a notebook defines, which workers do not know
delivery    one pass over an epoch: plans ahead, gathers, delivers in order
collating   entries of items that have no tensor in shared memory
nested      entries that are dicts, lists, tuples or dataclasses
core        what the passes of a loader share
messages    what a loader and its workers send each other; passed_files: the memory of the batches
to_device   pinned memory and copies to a GPU
on_device   the same batches from a dataset that a GPU decodes, without workers
loader_stats  what was waited for
"""
