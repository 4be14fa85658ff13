"""How arrays are cut into chunks and files, and how they are compressed."""

# 64 Ki rows decompress in well under a millisecond, so a slice of the timeline stays cheap. One Zarr shard is one file
# and holds 256 such chunks: a billion rows are 60 files, and writing one takes 128 MiB of memory.
CHUNK_ROWS = 1 << 16
SHARD_CHUNKS = 1 << 8
BLOCK_ROWS = CHUNK_ROWS * SHARD_CHUNKS
ZSTD_LEVEL = 5
