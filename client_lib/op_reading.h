#pragma once

#include "client_lib/include/tern/tern.h"
#include "client_lib/options.h"

namespace tern::client_lib {

// Reads and judges what a program passes as an operation, as far as it needs no state of the
// client. What it refuses has its text in the error detail. REQUIRES: request.plan; the group's
// and the op's memory stay valid while the request is used.
tern_status read_op(const tern_group& group, const tern_op* passed, OpRequest& request);

}  // namespace tern::client_lib
