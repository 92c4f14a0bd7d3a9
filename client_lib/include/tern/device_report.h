/* Tern's C interface: what an operator is told of a program's devices. Included by tern.h.
 */
#ifndef TERN_DEVICE_REPORT_H
#define TERN_DEVICE_REPORT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What an operator is told of devices ------------------------------------------------------ */

/* The daemon does not see what a program does on an accelerator. A library that encodes and decodes
 * there, as libtern_cuda does, says it by a report, and `ternctl clients` shows it. Nothing depends
 * on what it says. */
typedef struct {
  uint32_t struct_size;
  uint32_t device;           /* 0 .. 15, as the program counts its devices */
  uint64_t device_bytes;     /* memory of the device that is held now for Tern, up to 2^47 */
  uint64_t pinned_bytes;     /* memory of the host that is pinned now for Tern, up to 2^47 */
  uint64_t pinning_failures; /* how often memory could not be pinned; so far, as all that follows */
  uint64_t operations;       /* ended, with success or without */
  uint64_t failures;         /* of these, without */
  uint64_t encodes;          /* whose time the device has measured */
  uint64_t encode_ns;        /* of all of them */
  uint64_t last_encode_ns;
  uint64_t decodes; /* likewise */
  uint64_t decode_ns;
  uint64_t last_decode_ns;
  const char* pinning_problem; /* why memory could not be pinned the last time, of which 255 bytes
                                  are kept; NULL: it always could. Read by the call */
} tern_device_report;
#define TERN_DEVICE_REPORT_INIT \
  { sizeof(tern_device_report), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL }

/* Tells the daemon, in the place of the last report of the same device. The call waits for nothing:
 * a report for which the socket has no room is lost, and TERN_OK. Send at most one a second: totals
 * make up for one that was lost. A device that is not used any more is one that holds 0 bytes.
 * TERN_ERR_UNSUPPORTED if the daemon is of an older version, TERN_ERR_DAEMON_LOST. */
TERN_API tern_status tern_report_device(tern_client* client, const tern_device_report* report);

#ifdef __cplusplus
}
#endif

#endif /* TERN_DEVICE_REPORT_H */
