/* Tern: an operating-system service for machine-learning communication.
 *
 * The C interface of libtern, ABI version 1. A program connects to the daemon of its node (ternd),
 * joins a group of ranks, and submits collectives on tensors. Every operation is asynchronous: it
 * returns a ticket at once, and the ticket is tested, waited for or cancelled.
 *
 * Rules that hold everywhere
 *  - Every function returns a tern_status; TERN_OK is 0. tern_error_detail() has the sentence that
 *    goes with the last failure on the calling thread.
 *  - Handles are thread-safe: any thread may use any handle. A handle must not be used after the
 *    call that ends it. After fork() the child's handles answer TERN_ERR_FORKED and do no harm.
 *  - Nothing here aborts, prints, installs signal handlers or blocks without the timeout given to
 *    it.
 *  - Timeouts are milliseconds; 0 does not wait, TERN_FOREVER waits without limit; of a join or
 *    split both mean 60 s. A daemon that dies ends every wait with TERN_ERR_DAEMON_LOST.
 *  - Sizes of structs: every options struct begins with struct_size. Initialise the struct with the
 *    _INIT macro beside it. A field that a later version adds is then zero, which always means "as
 *    before". If a program uses a field that the library does not know, the call returns
 *    TERN_ERR_UNSUPPORTED. A struct that the library fills is filled as far as struct_size says;
 *    fields that the library does not know become zero.
 */
#ifndef TERN_TERN_H
#define TERN_TERN_H

#include "block_layout.h"
#include "device_report.h"
#include "push_pull.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Connection ------------------------------------------------------------------------------ */

typedef struct {
  uint32_t struct_size;
  uint32_t reserved;
  const char* socket_path; /* NULL: $TERN_SOCKET, else /run/tern/ternd.sock */
  const char* job;         /* label of the job, 1..63 letters (a-z, A-Z), digits and ._-:@+=/;
                              NULL: $TERN_JOB, else "default".
                              Codec state is kept per user, job and tensor name. */
  uint64_t arena_bytes;    /* address space for tern_alloc and copies; 0: 1 GiB, or a quarter of the
                              machine's memory if that is less. What is given out takes memory,
                              which the process's control group pays for. Counts against the
                              user's quota. A copy that finds no room has a region. */
  int64_t timeout_ms; /* for the whole hand-shake, and for every later request to the daemon that
                         has no timeout of its own (mint, leave, declare, ...); 0: 5000 */
} tern_connect_options;
#define TERN_CONNECT_OPTIONS_INIT \
  { sizeof(tern_connect_options), 0, NULL, NULL, 0, 0 }

/* Connects to the daemon of this node. options may be NULL. On success *client is to be ended with
 * tern_disconnect. TERN_ERR_DAEMON_ABSENT if nobody listens, TERN_ERR_PERMISSION_DENIED,
 * TERN_ERR_VERSION_MISMATCH, TERN_ERR_QUOTA_EXCEEDED, TERN_ERR_TIMEOUT. */
TERN_API tern_status tern_connect(const tern_connect_options* options, tern_client** client);

/* Leaves all groups, fails what is in flight, frees all memory of the client. Every group, tensor
 * and arena pointer of it is invalid afterwards. NULL is ignored. */
TERN_API tern_status tern_disconnect(tern_client* client);

/* Takes bytes (> 0) from the arena, aligned to 64. Tensors in the arena are read and written by the
 * daemon in place. The first use of a part of the arena takes the time in which the kernel finds
 * memory for it, a fifth of a second for each GiB. TERN_ERR_OUT_OF_MEMORY when the arena is full,
 * or the machine or the process's control group has no memory left. */
TERN_API tern_status tern_alloc(tern_client* client, size_t bytes, void** memory);

/* Takes `bytes` (> 0) of memory beside the arena, which the daemon makes: a region. What it holds is
 * read and written in place, as in the arena, but for what tern_send and tern_recv pass. So a
 * program that has filled its arena needs no other connection. A region begins on a page, counts
 * against the same quotas as the arena, and its pages are found at once, a fifth of a second for
 * each GiB. A client has at most 64, of which it makes 8 at once. The call asks the daemon and waits
 * for its answer; the client's timeout_ms counts. tern_free gives the whole region back,
 * tern_disconnect too. TERN_ERR_QUOTA_EXCEEDED, TERN_ERR_OUT_OF_MEMORY, TERN_ERR_DAEMON_LOST,
 * TERN_ERR_UNSUPPORTED if the daemon is of an older version. */
TERN_API tern_status tern_region_create(tern_client* client, uint64_t bytes, void** memory);

/* Gives memory of tern_alloc or tern_region_create back. NULL is ignored. Must not be used by an
 * operation in flight. */
TERN_API tern_status tern_free(tern_client* client, void* memory);

/* ---- Groups ---------------------------------------------------------------------------------- */

/* Names a group and proves the right to join it; printable text, zero-terminated. It travels from
 * the rank that mints it to the others by the application's own means (a file, torchrun's store,
 * MPI, Slurm). It contains a secret: whoever has it can join. Its size never changes. */
typedef struct {
  char text[256];
} tern_group_id;

/* Mints a new group id at this node's daemon, which becomes the group's coordinator. */
TERN_API tern_status tern_group_mint(tern_client* client, tern_group_id* id);

typedef struct {
  uint32_t struct_size;
  int32_t rank;          /* 0 .. size-1, each taken once */
  int32_t size;          /* the same on all ranks, 1 .. 1024, on at most 64 nodes with at most 64
                            ranks each */
  uint32_t verify;       /* 1: compare the checksums of results that all ranks have alike, those of
                            all_reduce, all_gather and broadcast, across ranks after each of these */
  uint64_t seed;         /* for recipes that draw random numbers; the same on all ranks */
  int64_t timeout_ms;    /* how long to wait for the other ranks, at most the daemon's
                            join_timeout_max (1 h); 0 and TERN_FOREVER: 60000. The call may return
                            a second later, or later still if the group is just beginning */
  int64_t op_timeout_ms; /* an operation not submitted by all ranks for so long fails everywhere;
                            0: the daemon's setting (10 minutes) */
} tern_join_options;
#define TERN_JOIN_OPTIONS_INIT \
  { sizeof(tern_join_options), 0, 1, 0, 0, 0, 0 }

/* Joins the group and returns when all ranks have joined. After the group has failed and has been
 * left, a second join with the same id starts the next epoch. TERN_ERR_BAD_SECRET,
 * TERN_ERR_RANK_TAKEN, TERN_ERR_WRONG_SIZE, TERN_ERR_TIMEOUT (the detail names the missing ranks),
 * TERN_ERR_UNREACHABLE; TERN_ERR_PERMISSION_DENIED or TERN_ERR_VERSION_MISMATCH if another daemon
 * refuses the link. */
TERN_API tern_status tern_group_join(tern_client* client, const tern_group_id* id,
                                     const tern_join_options* options, tern_group** group);

typedef struct {
  uint32_t struct_size;
  uint32_t verify; /* of the child, as in tern_join_options; so are the next ones */
  uint64_t seed;
  int64_t timeout_ms;
  int64_t op_timeout_ms;
} tern_split_options;
#define TERN_SPLIT_OPTIONS_INIT \
  { sizeof(tern_split_options), 0, 0, 0, 0 }

/* Divides the group into children: every rank of the parent calls it, and those of one colour become
 * a group of their own, a row of a mesh for example. Ranks of the child are in the order of their
 * keys, and where these are equal in the order of their ranks in the parent. A rank with a negative
 * colour takes no part in a child: *child is then NULL. options may be NULL. The parent goes on, and
 * its operations may be in flight meanwhile; it is split by one call at a time.
 *
 * A child is a group like any other: it has tensors, limits and links of its own, counts against the
 * same quotas, may be split itself, outlives its parent, and is to be left. It fails alone, unless a
 * process or a daemon dies, which ends every group that it is in. It has no id, so that a child that
 * has failed is not joined again: split the parent anew. Codec state is kept for each child apart,
 * under the splits and colours that it has come by, which are counted anew in each epoch.
 *
 * Returns when all ranks of the child are ready. TERN_ERR_TIMEOUT: not all ranks have called it; the
 * detail names the missing ones (ranks of the parent). Further TERN_ERR_QUOTA_EXCEEDED,
 * TERN_ERR_UNSUPPORTED if the daemon is of an older version, and why the parent has ended. */
TERN_API tern_status tern_group_split(tern_group* parent, int32_t color, int32_t key,
                                      const tern_split_options* options, tern_group** child);

/* Leaves the group; operations in flight fail on all ranks with TERN_ERR_GROUP_LEFT. Frees the
 * handle and those of its tensors. */
TERN_API tern_status tern_group_leave(tern_group* group);

typedef struct {
  uint32_t struct_size;
  int32_t rank;
  int32_t size;
  int32_t node; /* index of this node, 0 .. node_count-1 */
  int32_t node_count;
  uint32_t epoch;          /* 1 for the first join, one more for every rejoin */
  uint64_t last_common_op; /* how many of its first operations every rank had completed when the
                              epoch before this one ended; 0 in the first epoch */
  uint64_t number;         /* what this node's daemon calls the group while it lasts, as `number` in
                              docs/control-protocol.md; not 0 */
} tern_group_info;
#define TERN_GROUP_INFO_INIT \
  { sizeof(tern_group_info), 0, 0, 0, 0, 0, 0, 0 }

TERN_API tern_status tern_group_get_info(tern_group* group, tern_group_info* info);

/* What tensors of the group may lose that are declared from now on and have no level of their own:
 * as tern_tensor_options.level, copied; NULL: the operator's policy again. It is this rank's word and
 * every rank says the same, as it does of a tensor's own level. Children have their own. The daemon
 * reads the text when a tensor is declared, and then says what is wrong with it.
 * TERN_ERR_INVALID_ARGUMENT. */
TERN_API tern_status tern_group_set_level(tern_group* group, const char* level);

/* ---- Tensors --------------------------------------------------------------------------------- */

typedef struct {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name; /* stable across steps and runs, 1..127 bytes; required */
  uint64_t count;   /* elements, > 0; the same on all ranks */
  tern_dtype dtype;
  tern_role role;
  const char* recipe; /* NULL: the operator's policy, else "auto" for gradients and deltas (the
                         setting default_gradient_recipe) and "raw" for the others. The memory of a
                         recipe is fixed for the epoch: "3lc:s=1" is "ef(3lc:s=1,scale=4096)". With
                         "auto" the tuner chooses for each operation. docs/codecs.md has the
                         grammar. */
  /* For recipe "auto": NULL (the daemon's policy, else balanced), lossless, conservative, balanced
     or aggressive, or a bound: "loss<=0.01", "residual<=2". 1..15 bytes; docs/tuner.md. */
  const char* level;
  int32_t priority; /* higher goes first; 0 normal */
  uint32_t exempt;  /* 1: never compressed lossily, whatever role and recipe say */
  uint32_t
      client_blocks; /* 1: operations on it have blocks in place of elements, and are all_reduce
                             alone; tern/block_layout.h. Each node's own word: others may have
                             elements. The group has one rank on this node, and the recipe is "auto"
                             or has memory none or ef, and no scale=tensor */
  uint32_t reserved1;
} tern_tensor_options;
#define TERN_TENSOR_OPTIONS_INIT \
  { sizeof(tern_tensor_options), 0, NULL, 0, TERN_F32, TERN_EXACT, NULL, NULL, 0, 0, 0, 0 }

/* Declares a tensor in the group, with the memory that its recipe needs. The call is local and does
 * not wait for the other ranks. If ranks of one node declare the tensor differently, the later call
 * fails with TERN_ERR_MISMATCH; of ranks on several nodes the first operation does.
 * TERN_ERR_ALREADY_EXISTS, TERN_ERR_OUT_OF_MEMORY, TERN_ERR_QUOTA_EXCEEDED, TERN_ERR_BAD_RECIPE
 * (the detail points at the place); TERN_ERR_UNSUPPORTED for client_blocks where several ranks of
 * the group are on this node, or the daemon is too old. */
TERN_API tern_status tern_tensor_declare(tern_group* group, const tern_tensor_options* options,
                                         tern_tensor** tensor);

/* Ends the declaration. Operations in flight keep the tensor alive until they end. NULL is ignored.
 */
TERN_API tern_status tern_tensor_release(tern_tensor* tensor);

typedef struct {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t ops;          /* completed operations */
  uint64_t bytes_raw;    /* what the blocks sent by this node would have been uncompressed */
  uint64_t bytes_sent;   /* what these blocks took, block headers included */
  double ratio;          /* bytes_raw / bytes_sent; 1 before the first operation */
  double residual_ratio; /* root of (energy of the residual / energy of the input), last op */
  uint64_t encode_ns, queue_ns, wire_ns, decode_ns, wait_ns; /* totals over all operations */
  uint64_t raw_fallbacks; /* chunks sent raw because of a NaN or an infinity */
  uint64_t state_bytes;   /* memory held by the recipe's state on this node */
  char recipe[64];        /* in canonical form */
} tern_tensor_stats;
#define TERN_TENSOR_STATS_INIT                                                  \
  {                                                                             \
    sizeof(tern_tensor_stats), 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0, { 0 } \
  }

TERN_API tern_status tern_tensor_get_stats(tern_tensor* tensor, tern_tensor_stats* stats);

/* The state that a lossy recipe keeps between steps (the residual of error feedback, the shifts of
 * diana and ef21), for checkpoints. Each node has one part of the state. All ranks of a node get
 * the same part, so one of them saves it. Call these functions on every node while no operation on
 * the tensor is in flight; otherwise they return TERN_ERR_WOULD_BLOCK. An operation on the tensor
 * that begins meanwhile ends them with TERN_ERR_CANCELLED. A part is plain bytes and
 * may be stored and moved between machines of the same byte order. Each call needs as much free
 * arena as it moves bytes, and blocks until the daemon has answered. Codebooks that some recipes
 * start from, and the last values of xordelta, are in no part: the first step after a restart sends
 * some more bytes.
 *
 * tern_tensor_state_bytes: how many bytes this node's part has, its header included.
 * tern_tensor_export_state: writes the part to memory of `capacity` bytes and its length to *bytes.
 * As much of the arena must be free as `capacity` says, which may be what tern_tensor_state_bytes
 * gives.
 * tern_tensor_import_state: replaces the state of the tensor. Import on every node, and begin no
 * operation before all nodes have imported (tern_barrier). If nodes and ranks are placed as they
 * were at the export, each node needs its own part only; further parts do no harm. In another
 * layout, error feedback needs the parts of all nodes and adds them up. Shifts of diana and ef21
 * belong to their nodes and chunks and cannot move; neither can the state of an operation with
 * counts to another number of ranks, nor that of a root to a group without this rank. They give
 * TERN_ERR_STATE_MISMATCH, as does a part of another tensor, memory or operation. Values that are
 * not finite are refused. After a failed import the state may be neither the old nor the new one:
 * import again or release the tensor. */
TERN_API tern_status tern_tensor_state_bytes(tern_tensor* tensor, uint64_t* bytes);
TERN_API tern_status tern_tensor_export_state(tern_tensor* tensor, void* part, uint64_t capacity,
                                              uint64_t* bytes);
TERN_API tern_status tern_tensor_import_state(tern_tensor* tensor, const void* const* parts,
                                              const uint64_t* part_bytes, uint32_t count);

/* ---- Operations ------------------------------------------------------------------------------ */

#define TERN_ANY_SOURCE (-1)

/* What a recv has received. */
typedef struct {
  uint32_t struct_size;
  int32_t source; /* the rank that has sent it */
  uint64_t count; /* elements, at most as many as the recv has room for */
} tern_received;
#define TERN_RECEIVED_INIT \
  { sizeof(tern_received), 0, 0 }

/* One operation. input and output may be any pointers: in the arena they are used in place,
 * elsewhere they are copied. Both must stay valid, and input unchanged, until the ticket ends. What
 * a rank neither reads nor writes may be NULL. After a failure the output is undefined, in place
 * the input too.
 *
 * Of 256 KiB and more the operation begins at once, and the copies go on while it runs: the input is
 * copied by the call that submits, the output piece by piece by those that wait or test. It is copied
 * before and after if it is no larger than the daemon's eager_bytes, or if the arena has no room for
 * the lists of pieces.
 *
 * An operation has `count` elements in all. Where ranks have shares of them (reduce_scatter,
 * all_gather, gather, scatter), the share of rank 0 comes first, then that of rank 1, and so on.
 * `counts` gives the elements of each share and is read before the call returns; NULL means equal
 * shares. All ranks give the same; a share may have no elements.
 *
 * In place: output == input where both hold the same elements. Where one holds a share and the
 * other all, the share's own place among all (output + begin of the share for all_gather, input +
 * begin for reduce_scatter). NULL for one of the two means in place on the other. Any other overlap
 * is refused. */
typedef struct {
  uint32_t struct_size;
  tern_dtype dtype;    /* of an anonymous op; ignored with a tensor */
  tern_tensor* tensor; /* NULL: anonymous, matched by the order of anonymous ops in the group */
  const void* input;
  void* output;
  uint64_t count; /* elements of an anonymous op, in all; with a tensor 0 or the declared count;
                     with counts 0 or their sum */
  tern_reduction reduction;
  int32_t root;      /* reduce, gather: the rank that gets the result; broadcast, scatter: the rank
                        whose input it is */
  int32_t priority;  /* 0: the tensor's */
  float prescale;    /* inputs are multiplied by this; 0 means 1. Of reductions only */
  float state_scale; /* the recipe's state is multiplied by this first, for a changed loss scale
                        or learning rate; 0 means 1 */
  uint32_t reserved;
  const char* recipe;    /* NULL: the tensor's. Same memory as the declaration, other compressor. */
  uint64_t wait_event;   /* reserved for device events: 0 */
  uint64_t signal_event; /* reserved for device events: 0 */
  const uint64_t* counts; /* NULL, or elements of each rank's share, as many as ranks; all_to_all:
                             elements for each rank */
  const uint64_t* receive_counts; /* all_to_all with counts: elements from each rank; else NULL */
  int32_t peer;                   /* send: who receives; recv: who sends, or TERN_ANY_SOURCE */
  uint32_t tag;                   /* send, recv */
  tern_received* received; /* recv: NULL, or what is filled when a wait or a test reports success,
                              and stays valid until then; of others NULL */
  const tern_encoded* encoded; /* of client_blocks: NULL, or what came of encoding the input, which
                                  recipe "auto" goes by. Read before the call returns; of others
                                  NULL */
} tern_op;
#define TERN_OP_INIT                                                                           \
  {                                                                                            \
    sizeof(tern_op), TERN_F32, NULL, NULL, NULL, 0, TERN_SUM, 0, 0, 0.0f, 0.0f, 0, NULL, 0, 0, \
        NULL, NULL, 0, 0, NULL, NULL                                                           \
  }

/* Every rank's output becomes the reduction of all inputs, bit-identical on all ranks.
 * TERN_ERR_WOULD_BLOCK when too many operations are in flight or not yet reported (512 per client),
 * or when their copies fill the arena: wait for one operation and submit again.
 * Copies for which nothing that ends would make room lie in a region, which the library has the
 * daemon make, and keeps for later copies. So the call may take as long as tern_region_create.
 * TERN_ERR_OUT_OF_MEMORY when the daemon makes no region, as the detail says, and nothing is in
 * flight: free memory of tern_alloc, or use a larger arena. Counts, and what tern_send and tern_recv
 * pass, have to lie in the arena. */
TERN_API tern_status tern_all_reduce(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* Every rank's output becomes the root's input. The reduction is ignored. Bit for bit, unless the
 * tensor is a delta and its declaration or the operation writes out a lossy recipe: "auto" loses
 * nothing here. All outputs then have the same bits, the root's too. */
TERN_API tern_status tern_broadcast(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* The root's output becomes the reduction of all inputs. Other ranks have no output. */
TERN_API tern_status tern_reduce(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* Every rank's output becomes its share of the reduction of all inputs, which hold `count` elements
 * each. */
TERN_API tern_status tern_reduce_scatter(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* Every rank's output, of `count` elements, becomes the inputs of all ranks one after the other.
 * Each rank's input has its share. The reduction is ignored, here and below. A gradient or delta
 * travels by its recipe, which may lose values: all outputs have the same bits all the same, and a
 * rank's own share in its output is what the others get. */
TERN_API tern_status tern_all_gather(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* The same, for the root's output alone. */
TERN_API tern_status tern_gather(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* Every rank's output becomes its share of the root's input, which has `count` elements. */
TERN_API tern_status tern_scatter(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* Every rank's output becomes what each rank has for it: the elements of rank 0 first, then those of
 * rank 1, and so on. Its input has the elements for rank 0, then those for rank 1, and so on; all
 * have count / size elements, or as `counts` and `receive_counts` say, and then count is 0. What one
 * rank sends to another must be what that one expects: TERN_ERR_MISMATCH. Input and output must not
 * overlap, and the operation takes no tensor. */
TERN_API tern_status tern_all_to_all(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* Ends when every rank has submitted it. */
TERN_API tern_status tern_barrier(tern_group* group, tern_ticket* ticket);

/* Sends `count` elements of the input to rank op->peer, which may be this rank. Between two ranks,
 * the sends with one tag meet the recvs with this tag in the order in which both were submitted;
 * other tags and other ranks do not matter to them, and nobody else hears of them. The output, the
 * reduction, the root and the priority are ignored, and a tensor is refused.
 *
 * A recipe without memory that loses values, such as "bf16" or "none(int:bits=8)", is for f32, f16
 * and bf16. What leaves the node and has at least lossy_min_bytes is compressed by it. The recv must
 * say by such a recipe of its own, which need not be the same, that it takes what has lost values.
 *
 * The ticket ends when the receiver has all elements, however small they are: two ranks that send to
 * each other submit both before they wait for one. A rank may have 256 sends and recvs in flight in
 * a group, beside its other operations; TERN_ERR_WOULD_BLOCK otherwise. They are no part of
 * last_common_op.
 *
 * TERN_ERR_MISMATCH on both ranks if the types differ, the recv has too little room, or the send has
 * a recipe that loses values and the recv none. TERN_ERR_BAD_RECIPE for a recipe with memory.
 * TERN_ERR_OP_TIMEOUT if no recv came within the group's op_timeout. TERN_ERR_UNSUPPORTED if the
 * daemon of some node of the group is too old. */
TERN_API tern_status tern_send(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* Receives up to `count` elements from rank op->peer into the output. With TERN_ANY_SOURCE these are
 * the elements of whoever sent with the tag first, as this node hears of it. op->received tells who
 * sent, and how many elements came: where they are fewer than count, the rest of the output is as it
 * was. The input is ignored. Otherwise as tern_send. After a failure the output is undefined. */
TERN_API tern_status tern_recv(tern_group* group, const tern_op* op, tern_ticket* ticket);

/* ---- Batches --------------------------------------------------------------------------------- */

typedef enum {
  TERN_OP_ALL_REDUCE = 1,
  TERN_OP_BROADCAST = 2,
  TERN_OP_BARRIER = 3,
  TERN_OP_REDUCE = 5,
  TERN_OP_REDUCE_SCATTER = 6,
  TERN_OP_ALL_GATHER = 7,
  TERN_OP_ALL_TO_ALL = 9,
  TERN_OP_GATHER = 11,
  TERN_OP_SCATTER = 12,
  TERN_OP_SEND = 13,
  TERN_OP_RECV = 14
} tern_op_kind;

typedef struct {
  tern_op_kind kind;
  uint32_t reserved;
  const tern_op* op; /* NULL of a barrier. Read before the call returns, as all it points to */
} tern_batch_op;

typedef struct {
  uint32_t struct_size;
  uint32_t reserved;
  const tern_batch_op* ops;
  uint64_t count; /* 1 .. max_ops_in_flight of the group (the daemon's setting, 512 at most) */
  tern_ticket* tickets; /* NULL: one ticket for all. Else room for `count` tickets, one for each */
} tern_batch;
#define TERN_BATCH_INIT \
  { sizeof(tern_batch), 0, NULL, 0, NULL }

/* Submits many operations of one group at once, which costs far less than one call for each: every
 * lane of the daemon is told once. All are judged first. If one of them is refused, none is
 * submitted, and the detail says which one and why. So it is with TERN_ERR_WOULD_BLOCK, which means
 * what it means for one: a batch counts as many operations as it has.
 *
 * The operations run side by side and match those of other ranks as if they were submitted one by
 * one in the order of the list: other ranks need no batch. No operation may write memory that
 * another one of the batch reads or writes. A batch cannot be in a batch.
 *
 * *ticket names the whole batch, unless batch->tickets is given: then *ticket is 0, and ticket may
 * be NULL. The ticket of a batch ends when all its operations have ended. A wait for it returns
 * TERN_OK if all have succeeded, else the status of the first in the list that failed; the detail
 * names it, and the outputs of those that succeeded are there. Cancel asks for the end of all that
 * still run.
 * TERN_ERR_INVALID_ARGUMENT if count is too large; the detail names the limit. */
TERN_API tern_status tern_submit_batch(tern_group* group, const tern_batch* batch,
                                       tern_ticket* ticket);

/* ---- Tickets --------------------------------------------------------------------------------- */

/* TERN_OK: the op has succeeded and the ticket is gone. TERN_ERR_TIMEOUT: the op is still running;
 * the ticket stays and the memory is in use. Any other status says why the op failed, and the
 * ticket is gone. */
TERN_API tern_status tern_wait(tern_client* client, tern_ticket ticket, int64_t timeout_ms);

/* The same as tern_wait with a timeout of 0. */
TERN_API tern_status tern_test(tern_client* client, tern_ticket ticket);

/* Waits until one of the tickets has ended and writes its position to *index. Returns the status of
 * that ticket as tern_wait does. */
TERN_API tern_status tern_wait_any(tern_client* client, const tern_ticket* tickets, size_t count,
                                   int64_t timeout_ms, size_t* index);

/* Asks for the end of an op. The op then fails on all ranks with TERN_ERR_CANCELLED, unless the op
 * has already completed: a rank on which it has completed keeps its result. A send that no recv has
 * met, or a recv that no send has, ends on this rank alone. Wait for the ticket all the same. */
TERN_API tern_status tern_cancel(tern_client* client, tern_ticket ticket);

/* A descriptor that polls readable when at least one ticket may have ended since the last call of
 * tern_test, tern_wait or tern_wait_any. It stays readable while an ended ticket has not been
 * reported. The descriptor belongs to the client and is only for poll, select and epoll. */
TERN_API tern_status tern_fd(tern_client* client, int* fd);

#ifdef __cplusplus
}
#endif

#endif /* TERN_TERN_H */
