/* Blocks on this process's processor: what tern.h's client_blocks asks of a program, done by a
 * library. Link libtern_blocks beside libtern.
 *
 * A tensor that is declared with client_blocks = 1 takes blocks (tern/block_layout.h). This library
 * encodes a node's contributions and decodes results in the calling thread, so that the daemon does
 * neither: its processor time is for the sums of the chunks that the node owns. Results have the
 * bits that they have without it, and nodes with and without it can be in one group. It has all
 * recipes that client_blocks allows, and is the model for libraries that do the same elsewhere.
 *
 * Threads: a tern_blocks is for one thread at a time. Errors are those of tern.h;
 * tern_blocks_error_detail has the sentence of the calling thread's last call here that failed. A
 * fork ends the use of a client, and of this with it. */
#ifndef TERN_BLOCKS_H
#define TERN_BLOCKS_H

#include <tern/tern.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The sentence for the last failure here in this thread; never NULL. Valid until the thread's next
 * call. */
TERN_API const char* tern_blocks_error_detail(void);

typedef struct tern_blocks tern_blocks;

/* For one tensor, declared in `group` of `client` with client_blocks = 1; a declaration has one
 * tern_blocks at a time, and another one after a release that returned TERN_OK. Takes slots out of the
 * arena (tern_block_layout: chunks * slot_bytes), and two floats per element of the process's memory
 * if the recipe has error feedback. The residual begins as what the daemon has kept of it; to read
 * that takes four bytes of free arena for each element.
 * Release it before the tensor, the group and the client. TERN_ERR_UNKNOWN_TENSOR for a tensor without
 * client_blocks, TERN_ERR_OUT_OF_MEMORY. */
TERN_API tern_status tern_blocks_create(tern_client* client, tern_group* group, tern_tensor* tensor,
                                        tern_blocks** blocks);

/* Gives the slots back, and hands the residual to the daemon, which keeps it for the next declaration
 * of the tensor. That takes four bytes of free arena for each element. An operation under way is
 * cancelled first. *blocks is gone in any case. NULL is ignored. An error means that the residual is
 * lost, which the daemon counts as a reset of the tensor's state. */
TERN_API tern_status tern_blocks_release(tern_blocks* blocks);

/* Encodes op->input and submits, as tern_all_reduce with the same op would; op->tensor is ignored.
 * input is read before the call returns, output is written by tern_blocks_wait; both hold the
 * tensor's elements, anywhere in memory. NULL for one of them: in place. A prescale is for f32
 * alone, and a recipe is refused; count is 0 or the tensor's. One operation of a tern_blocks is
 * under way at a time: TERN_ERR_WOULD_BLOCK otherwise. After a failure the residual is what it was
 * before, unless a result came that cannot be decoded (TERN_ERR_CORRUPT_DATA): the owners have the
 * contribution. */
TERN_API tern_status tern_blocks_all_reduce(tern_blocks* blocks, const tern_op* op);

/* As tern_wait, for the operation that is under way, whose result it decodes into its output.
 * TERN_ERR_TIMEOUT: it goes on. TERN_ERR_UNKNOWN_TICKET: there is none. */
TERN_API tern_status tern_blocks_wait(tern_blocks* blocks, int64_t timeout_ms);

/* As tern_tensor_export_state and tern_tensor_import_state, with the residual that is kept here in
 * its place in the node's part: parts are interchangeable with those of a tensor without
 * client_blocks. TERN_ERR_WOULD_BLOCK while an operation is under way. `capacity` is at least what
 * tern_tensor_state_bytes says. */
TERN_API tern_status tern_blocks_export_state(tern_blocks* blocks, void* part, uint64_t capacity,
                                              uint64_t* bytes);
TERN_API tern_status tern_blocks_import_state(tern_blocks* blocks, const void* const* parts,
                                              const uint64_t* part_bytes, uint32_t count);

#ifdef __cplusplus
}
#endif

#endif /* TERN_BLOCKS_H */
