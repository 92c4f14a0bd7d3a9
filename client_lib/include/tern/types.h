/* Tern's C interface: statuses, types and handles. Included by tern.h; the rules that hold everywhere
 * are there.
 */
#ifndef TERN_TYPES_H
#define TERN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TERN_API __attribute__((visibility("default")))
#else
#define TERN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TERN_ABI_VERSION 1
#define TERN_FOREVER (-1)

/* ---- Errors ---------------------------------------------------------------------------------- */

typedef int32_t tern_status;
enum {
  TERN_OK = 0,
  TERN_ERR_INVALID_ARGUMENT = 1,
  TERN_ERR_OUT_OF_MEMORY = 2,
  TERN_ERR_WOULD_BLOCK = 3,
  TERN_ERR_TIMEOUT = 4,
  TERN_ERR_DAEMON_ABSENT = 5,
  TERN_ERR_DAEMON_LOST = 6,
  TERN_ERR_PEER_LOST = 7,
  TERN_ERR_RANK_LOST = 8,
  TERN_ERR_MISMATCH = 9,
  TERN_ERR_CANCELLED = 10,
  TERN_ERR_OP_TIMEOUT = 11,
  TERN_ERR_BAD_SECRET = 12,
  TERN_ERR_RANK_TAKEN = 13,
  TERN_ERR_WRONG_SIZE = 14,
  TERN_ERR_QUOTA_EXCEEDED = 15,
  TERN_ERR_UNKNOWN_GROUP = 16,
  TERN_ERR_UNKNOWN_TENSOR = 17,
  TERN_ERR_UNKNOWN_TICKET = 18,
  TERN_ERR_VERSION_MISMATCH = 19,
  TERN_ERR_PERMISSION_DENIED = 20,
  TERN_ERR_FORKED = 21,
  TERN_ERR_CORRUPT_DATA = 22,
  TERN_ERR_PROTOCOL_ERROR = 23,
  TERN_ERR_EPOCH_ENDED = 24,
  TERN_ERR_UNSUPPORTED = 25,
  TERN_ERR_IO_ERROR = 26,
  TERN_ERR_SHUTTING_DOWN = 27,
  TERN_ERR_GROUP_LEFT = 28,
  TERN_ERR_STATE_MISMATCH = 29,
  TERN_ERR_RESULT_MISMATCH = 30,
  TERN_ERR_BAD_RECIPE = 31,
  TERN_ERR_ALREADY_EXISTS = 32,
  TERN_ERR_UNREACHABLE = 33,
  TERN_ERR_INTERNAL = 34
};

/* One sentence: what the code means and what to do. Static storage, never NULL. */
TERN_API const char* tern_strerror(tern_status status);

/* What exactly went wrong in the last failing call of the calling thread (which rank said what,
 * which name is missing). Valid until the thread's next call into libtern; "" if there is nothing
 * to add. */
TERN_API const char* tern_error_detail(void);

/* The version of the library, "0.1.0". */
TERN_API const char* tern_version(void);

/* ---- Types ----------------------------------------------------------------------------------- */

typedef enum {
  TERN_F32 = 0,
  TERN_F64 = 1,
  TERN_F16 = 2,
  TERN_BF16 = 3,
  TERN_I64 = 4,
  TERN_I32 = 5,
  TERN_U8 = 6,
  TERN_BOOL = 7, /* a byte: 0 is false, all others are true */
  TERN_I8 = 8,
  TERN_I16 = 9,
  TERN_FP8_E4M3 = 10, /* moved, never reduced; so is the next */
  TERN_FP8_E5M2 = 11,
  TERN_C64 = 12, /* two f32: real part, imaginary part */
  TERN_C128 = 13,
  TERN_U16 = 14,
  TERN_U32 = 15,
  TERN_U64 = 16
} tern_dtype;

typedef enum {
  TERN_SUM = 0,
  TERN_AVERAGE = 1, /* floating-point and complex types only */
  TERN_MIN = 2,     /* not of complex types and booleans; a NaN on any rank is the result */
  TERN_MAX = 3,
  TERN_PRODUCT = 4, /* not of booleans; nor is the sum */
  TERN_AND = 5,     /* these three: bit by bit of integers, as truth values of booleans */
  TERN_OR = 6,
  TERN_XOR = 7
} tern_reduction;

/* What a tensor is to the application. Only gradients and deltas may ever travel lossily, and they
 * do so by default: a gradient or delta without a recipe of its own has the daemon's setting
 * default_gradient_recipe, which is "auto" at the level balanced unless the operator changes it.
 * Use TERN_EXACT, TERN_WEIGHTS or `exempt` for values that must arrive bit for bit. */
typedef enum { TERN_EXACT = 0, TERN_GRADIENT = 1, TERN_DELTA = 2, TERN_WEIGHTS = 3 } tern_role;

typedef struct tern_client tern_client;
typedef struct tern_group tern_group;
typedef struct tern_tensor tern_tensor;
typedef struct tern_push_pull tern_push_pull;

/* Names one submitted operation of one client, until a wait or test reports the operation's end.
 * Never 0. */
typedef uint64_t tern_ticket;

#ifdef __cplusplus
}
#endif

#endif /* TERN_TYPES_H */
