/* Tern for tensors in the memory of NVIDIA GPUs: the C interface of libtern_cuda, ABI version 1.
 *
 * The library runs Tern's kernels in the program's own CUDA context. They encode what this node
 * contributes where the values are, and decode results there; only blocks cross to the host, in
 * memory of tern_alloc that the library pins. ternd knows nothing of CUDA. The driver is opened at
 * run time, so that a program which links this library starts where there is none.
 *
 *   tern_cuda_open      once for each context
 *   tern_cuda_tensor_bind     once for each tensor declared with client_blocks = 1
 *   tern_cuda_all_reduce      enqueues; the program's stream goes on when the result is there
 *   tern_cuda_wait      reports how the operation ended
 *
 * The rules of tern.h hold here too, with these differences
 *  - tern_cuda_error_detail() has the sentence that goes with the last failure of a function of this
 *    library on the calling thread.
 *  - CUDA does not survive fork(): in the child every function returns TERN_ERR_FORKED.
 *  - A thread that calls the library need not have the context current, but for tern_cuda_open.
 *
 * Streams. Kernels and copies run on streams of Tern's own: one decodes, and one encodes for each
 * stream of the program, of which 32 can be in use. What is enqueued on the program's stream before
 * the call is done before the input is read. What is enqueued behind the call finds the result in the
 * output, if the operation succeeds and has not said no_wait. No stream waits for ever: when the
 * operation fails, or the daemon is lost, the stream goes on, the output is as it was, and the ticket
 * says why. So a program that must not go on with old values waits for the ticket before it uses the
 * output.
 * While a stream waits, what is enqueued on it waits too, the next operation among it: operations
 * on one stream are under way together only with no_wait.
 * While a stream waits, a call that waits for the whole device or for all streams (cuCtxSynchronize,
 * cuMemFree, cuMemHostRegister) may wait for the operation: bind and release between operations.
 */
#ifndef TERN_CUDA_H
#define TERN_CUDA_H

#include "tern/tern.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tern_cuda tern_cuda;
typedef struct tern_cuda_tensor tern_cuda_tensor;

/* What exactly went wrong in the last failing call of the calling thread. Valid until the thread's
 * next call into this library; "" if there is nothing to add. */
TERN_API const char* tern_cuda_error_detail(void);

/* ---- Context --------------------------------------------------------------------------------- */

typedef struct {
  uint32_t struct_size;
  uint32_t operations; /* how many may be in flight or not yet reported, 1 .. 512; 0: 64 */
  const char* driver;  /* file name of the CUDA driver; NULL: libcuda.so.1 */
  const void*
      image; /* a cubin or fat binary of Tern's kernels, which is read by the call; NULL: the
                          one in the library */
} tern_cuda_options;
#define TERN_CUDA_OPTIONS_INIT \
  { sizeof(tern_cuda_options), 0, NULL, NULL }

/* Opens the driver in the context that is current for the calling thread, loads the kernels and
 * starts one thread. options may be NULL. Client and context must outlive *cuda, which is to be
 * ended with tern_cuda_close. TERN_ERR_UNSUPPORTED without a driver of CUDA 12.0 or later, without
 * a GPU of compute capability 8.0 or later, or if the library was built without kernels and options
 * have no image; the detail says what to do. */
TERN_API tern_status tern_cuda_open(tern_client* client, const tern_cuda_options* options,
                                    tern_cuda** cuda);

/* Ends the thread and frees what tern_cuda_open has made. TERN_ERR_WOULD_BLOCK while tensors are
 * bound: release them first. Tickets that were not reported are gone. NULL is ignored. */
TERN_API tern_status tern_cuda_close(tern_cuda* cuda);

typedef struct {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t device_bytes;     /* memory of the device that is held now: residuals and parameters */
  uint64_t pinned_bytes;     /* memory of the host that is pinned now: slots and parameters */
  uint64_t pinning_failures; /* binds that failed because memory could not be pinned */
  uint64_t operations;       /* ended, with success or without */
  uint64_t failures;         /* of these, without */
  uint64_t raw_fallbacks;    /* chunks that went raw because a value was not finite */
  uint64_t processor_blocks; /* results that no kernel reads, decoded by the processor */
  uint64_t encode_ns;        /* on the device, over all operations; copies of own chunks included */
  uint64_t decode_ns;
} tern_cuda_stats;
#define TERN_CUDA_STATS_INIT \
  { sizeof(tern_cuda_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

TERN_API tern_status tern_cuda_get_stats(tern_cuda* cuda, tern_cuda_stats* stats);

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Makes a tensor ready for operations on device memory: takes its slots from the arena and pins
 * them, and takes device memory for parameters and, under the memory ef, for the residual of the
 * chunks that other nodes own, twice. The residual begins as what tern_tensor_export_state has for
 * these chunks. Group and tensor are of the client of tern_cuda_open and must outlive *bound, which
 * is to be ended with tern_cuda_tensor_release. Nothing else may operate on the tensor meanwhile.
 *
 * The tensor is of f32 and declared with client_blocks = 1, and no operation on it is in flight.
 * Recipes: 3lc (with layout=tile and pad=1), int:bits=8 and int:bits=4 (with round=nearest), fp8,
 * bf16, raw; under the memory none or ef. With auto, what the tuner chooses and there are kernels
 * for; the rest of its choices goes raw. Values of other types and recipes go as elements through
 * pinned copies: declare the tensor without client_blocks, and copy to and from memory of tern_alloc.
 *
 * TERN_ERR_UNSUPPORTED for those, and for chunks that are too large for the GPU's shared memory;
 * TERN_ERR_UNKNOWN_TENSOR if the tensor takes elements; TERN_ERR_OUT_OF_MEMORY if the arena, the
 * device's memory or what may be pinned is used up. */
TERN_API tern_status tern_cuda_tensor_bind(tern_cuda* cuda, tern_group* group, tern_tensor* tensor,
                                           tern_cuda_tensor** bound);

/* Gives back what bind has taken, and hands the residual to the daemon, which keeps it for the next
 * declaration of the tensor; that takes room in the arena for a float of each element, after the
 * slots have given theirs back.
 * TERN_ERR_WOULD_BLOCK while an operation on the tensor is in flight: the handle is still valid. After
 * any other failure it is gone, and so is the residual. NULL is ignored. */
TERN_API tern_status tern_cuda_tensor_release(tern_cuda_tensor* tensor);

/* As tern_tensor_export_state and tern_tensor_import_state, whose parts they write and read, with
 * the residual that is on the device in its place. Both wait for the device.
 * TERN_ERR_WOULD_BLOCK while an operation on the tensor is in flight. */
TERN_API tern_status tern_cuda_tensor_export_state(tern_cuda_tensor* tensor, void* part,
                                                   uint64_t capacity, uint64_t* bytes);
TERN_API tern_status tern_cuda_tensor_import_state(tern_cuda_tensor* tensor,
                                                   const void* const* parts,
                                                   const uint64_t* part_bytes, uint32_t count);

/* ---- Operations ------------------------------------------------------------------------------ */

typedef struct {
  uint32_t struct_size;
  tern_reduction reduction;
  uint64_t input; /* device addresses (CUdeviceptr) of as many f32 as the tensor has, multiples of
                        16; they may be equal, and must not overlap in part */
  uint64_t output;
  float state_scale; /* the residual is multiplied by this first; 0 means 1 */
  int32_t priority;  /* 0: the tensor's */
  uint32_t no_wait;  /* 1: the stream does not wait; the ticket says when the result is there */
  uint32_t reserved;
} tern_cuda_op;
#define TERN_CUDA_OP_INIT \
  { sizeof(tern_cuda_op), TERN_SUM, 0, 0, 0.0f, 0, 0, 0 }

/* Enqueues an all_reduce of the tensor behind what is on `stream` (a CUstream of the context; NULL:
 * the default stream), lets the stream wait for the result, and returns. Other nodes may have
 * elements or blocks. The input must not change until the stream has gone on, and then may.
 *
 * With no_wait the stream goes on at once, and input and output belong to the operation until its
 * ticket is reported: so a stream that computes gradients does not stop for those that travel.
 *
 * *ticket is for tern_cuda_wait, and for no function of tern.h. A tensor has one operation in flight,
 * which ends when its ticket can be reported: TERN_ERR_WOULD_BLOCK before that, and if as many
 * operations are in flight or not yet reported as tern_cuda_options says.
 *
 * A failure of the call leaves the stream as if nothing had been called. After a failure of the
 * operation the residual is what it was before, and so is the output, unless results had come and
 * were being decoded: TERN_ERR_CORRUPT_DATA, or a failure of the driver. */
TERN_API tern_status tern_cuda_all_reduce(tern_cuda_tensor* tensor, const tern_cuda_op* op,
                                          void* stream, tern_ticket* ticket);

/* TERN_OK: the operation has succeeded, its output is there, and the ticket is gone.
 * TERN_ERR_TIMEOUT: it is still running; with 0 the call does not wait. Any other status says why it
 * failed, and the ticket is gone: what tern_wait says, TERN_ERR_DAEMON_LOST among it, or
 * TERN_ERR_INTERNAL with what the CUDA driver said. */
TERN_API tern_status tern_cuda_wait(tern_cuda* cuda, tern_ticket ticket, int64_t timeout_ms);

/* As tern_cancel: asks for the operation's end on all ranks, which then report TERN_ERR_CANCELLED
 * unless it has completed there. Other ranks hear of it if this one has submitted by then. The ticket
 * is still to be waited for. TERN_ERR_UNKNOWN_TICKET after it was reported. */
TERN_API tern_status tern_cuda_cancel(tern_cuda* cuda, tern_ticket ticket);

#ifdef __cplusplus
}
#endif

#endif /* TERN_CUDA_H */
