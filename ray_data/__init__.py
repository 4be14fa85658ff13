"""The clips of a dataset as blocks of Ray Data. This room knows ray, torch and training. Start at `ray_dataset`.

ray_dataset                the public function: options, sizes, the number of tasks
clip_datasource            the Datasource: read tasks, in terms of the installed Ray
clip_ranges                which clips each task reads, and in which blocks: pure functions
clip_columns, clip_tables  the columns of a block, and a block made of items
clip_reading               what a read task does on its node
"""
