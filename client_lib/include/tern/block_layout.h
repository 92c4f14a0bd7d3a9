/* Tern's C interface: blocks in place of elements. Included by tern.h.
 */
#ifndef TERN_BLOCK_LAYOUT_H
#define TERN_BLOCK_LAYOUT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Blocks in place of elements ------------------------------------------------------------- */

/* A block is one encoded chunk with a header of 32 bytes; docs/codecs.md has its bytes. The program
 * of a tensor that is declared with client_blocks = 1 encodes what its node contributes, and decodes
 * results, where the values are: on an accelerator, or in a language of its own. The daemon moves
 * its blocks, adds those of other nodes to this node's own chunks, and encodes these results. Nodes
 * with blocks and nodes with elements can be in one group, and a node with blocks gets the bits that
 * it would get with elements.
 *
 * Input and output of an operation on such a tensor are slots, one for each chunk, in memory of
 * tern_alloc or tern_region_create, at a multiple of 64 bytes. They may be the same slots. Slot c
 * begins at c * slot_bytes and belongs to the elements [c * chunk_elements, (c + 1) * chunk_elements)
 * of the tensor.
 *
 * - Input, a chunk that another node owns: a block. By the layout's recipe, or another one with
 *   memory none or ef; or a raw block (codec 0), which holds elements of the tensor's dtype. A chunk
 *   with a value that is not finite goes raw, with the flag 16. So does one whose block may need
 *   more than most_block_bytes. Of the chunks that one other node owns the first raw_first go raw.
 * - Input, a chunk that this node owns: its elements as they are, 32 bytes behind the slot's
 *   beginning. The 32 bytes are not read.
 * - Output: the block of the chunk's result, of any codec.
 *
 * Who encodes keeps the residual of the chunks that other nodes own, and the daemon keeps that of
 * this node's own chunks. Whoever keeps a residual multiplies it by the operation's state_scale. An
 * operation has no prescale and no recipe of its own: encode what is multiplied already.
 * Random draws and the header's stream_step follow docs/codecs.md, with seed, tensor and use.
 *
 * With recipe "auto" the layout's recipe and raw_first are the tuner's choice for the next operation:
 * ask for the layout once before each, and say in tern_op.encoded what came of it. The residual stays
 * when the recipe changes. The first block of a chunk that loses nothing, raw or lossless, carries all
 * that earlier ones have left out: its elements are value + state_scale * residual, and the residual
 * is what their type rounds away then, zero for f32. If one of them would not be finite, the block has
 * the values alone and the residual stays. So a recipe that the program cannot encode may always be
 * taken for raw. A program that was compiled without the field is_tuned is told raw.
 *
 * The daemon checks the header of each block against the operation, and copies the block before it
 * travels. An operation with a block that cannot be its chunk's fails on all ranks with
 * TERN_ERR_INVALID_ARGUMENT, which names rank and chunk; so does one with a payload that makes no
 * sense, with TERN_ERR_CORRUPT_DATA, which names the node. Nothing else is disturbed. */

typedef struct {
  uint32_t struct_size;
  uint32_t travels_whole;  /* 1: there is one chunk, which no node owns: its input is a block on all
                             nodes, and its output a raw block */
  uint64_t count;          /* elements of the tensor */
  uint64_t chunk_elements; /* of every chunk but the last */
  uint64_t chunks;
  uint64_t slot_bytes;       /* of each, a multiple of 64 */
  uint64_t most_block_bytes; /* header and payload; see above */
  uint64_t tensor;           /* the tensor's number, of random draws */
  uint64_t seed;             /* the group's, of random draws */
  uint64_t next_use;    /* how many operations on the tensor were submitted so far, in the epoch;
                                the number of the next one */
  uint32_t first_owner; /* the node that owns chunk 0. Chunk c: (first_owner + c) % nodes */
  uint32_t node;        /* this one, 0 .. nodes - 1 */
  uint32_t nodes;
  tern_dtype dtype;   /* of the tensor */
  char recipe[64];    /* of sums and averages, in canonical form; "raw": nothing is encoded, as of
                        other reductions. "lossless": raw where a block would not be shorter */
  uint32_t is_tuned;  /* 1: recipe and raw_first are of the operation next_use alone */
  uint32_t raw_first; /* of the chunks of each other node so many go raw, for a look at the link */
} tern_block_layout;
#define TERN_BLOCK_LAYOUT_INIT \
  { sizeof(tern_block_layout), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, TERN_F32, {0}, 0, 0 }

/* Where the blocks of the tensor lie, and how they are to be encoded. The layout is the same for all
 * operations of the epoch but for next_use and, where is_tuned is 1, recipe and raw_first.
 * TERN_ERR_UNKNOWN_TENSOR if the tensor was declared without client_blocks. */
TERN_API tern_status tern_tensor_get_block_layout(tern_tensor* tensor, tern_block_layout* layout);

/* What the tuner cannot see of an operation's blocks, for tern_op.encoded: over the elements that
 * went into lossy blocks the sum of the squares of values, without the residual that is added to
 * them, and the sum of the squares of the residual afterwards. Without it the tuner does not know
 * what contributions lose, and goes by results alone. */
typedef struct {
  uint32_t struct_size;
  uint32_t all_raw; /* 1: the program has no encoder for the layout's recipe, and all went raw. The
                       tuner then soon chooses another one */
  uint64_t elements;
  double energy;
  double residual_energy;
  uint64_t encode_ns; /* the time in which the program wrote all slots of the input */
} tern_encoded;
#define TERN_ENCODED_INIT \
  { sizeof(tern_encoded), 0, 0, 0.0, 0.0, 0 }

#ifdef __cplusplus
}
#endif

#endif /* TERN_BLOCK_LAYOUT_H */
