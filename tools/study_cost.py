"""Operations and memory traffic of each stage, argued from the code rather than measured."""

COST_TABLE = """Operations are additions, comparisons, shifts and the like of one value; a processor
does 8 or 16 of them at a time as a vector. Bytes are those that cross the second-level cache when a
chunk of 256 KiB is encoded, with b bits a code. The chunk's sums and codes stay in that cache
between passes, so that the passes over them cost operations only. Every encoder reads the value (4
bytes) and writes b/8. Error feedback reads and writes the residual, which is 8 bytes more; a shift
does so at both ends. The yardstick `e[i] += x[i]` is one operation and 12 bytes.

| stage | operations of a value, encode | decode | bytes, encode | complexity, working memory |
|---|---|---|---|---|
| `bf16`, `fp16` | 4 to 10: round, shift; fp16 also its range | 1 to 6 | 4 + b/8 | O(n), none |
| `bitmask` | 3: add half, carry, mask | gather of bits | 4 + b/8 | O(n), none |
| `fp8`, `mxfp8`, `mxfp4` | 2 for the block's largest, 10 to round into the format | table or 6 | 4 + b/8 | O(n), one scale a block |
| `int` nearest | 2 for the largest, 6: multiply, round, clamp, pack | 3: unpack, subtract, multiply | 4 + b/8 | O(n), one scale a block |
| stochastic: `int`, `qsgd`, `terngrad`, `natural` | the same and 10 for a draw by position | as above | 4 + b/8 | O(n), no state: draws are a function of key and position |
| `onebit` | 4: two sums, sign, pack | 2 | 4 + 1/8 | O(n), two means a block |
| `3lc` | 1 for the largest, 2 comparisons, base 3, runs on a fifth of a byte | 3, fewer in runs | 4 + b/8 | O(n), none; two passes |
| `lloyd` | 2^b - 1 comparisons without a branch; training on 4,096 values, twice | one table look-up | 4 + b/8 | O(n 2^b); 2^b levels |
| `topk` by sample | 1 comparison, and 1 move of what is kept; threshold from a sample | scatter of p n | 4 + p (b/8 + position) | O(n); positions of p n |
| `topk:exact=on` | some twenty counting passes through cache | the same | the same | O(20 n) |
| `randk`, `blocksparse` | 1 scan for NaN and energy, p draws | redraws p n positions | 4 p + p b/8 | O(n) |
| `huffman` | of a byte of codes: 1 count, 1 look-up, shift, or | 1 look-up for 1 to 2 symbols | in cache | O(n); 256 lengths, tables of some KiB |
| static `huffman` | the same without the count | the same | in cache | O(n); nothing in the block |
| `gzip`, `zstd`, `lz4` | of a byte: hash, look-up, comparison of a match; then Huffman or FSE (not lz4) | copy of matches | in cache, tables of 64 KiB to 1 MiB beside | O(n) with large constants |
| `zrun` | of a byte: 1 comparison, 1 move | 1 move | in cache | O(n), none |
| `lossless` | split in planes: 3; Huffman of the exponents | the same back | 4 + b/8 | O(n), a chunk of work memory |
| `xordelta` | 1 exclusive or, comparison; Huffman where most has changed | the same | 12 + b/8: the last value is read and written | O(n), the last value at both ends |"""
