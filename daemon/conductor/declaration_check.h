#pragma once

#include <string>

#include "base/result.h"
#include "daemon/tensor/tensor_state.h"
#include "shm/layout.h"

namespace tern::daemon {

// Foreign bytes: what a declaration says, and nothing of whether it can be had.
Status check_declaration(const shm::TensorDeclarePacket& packet);

// What ranks must agree on, for an error.
std::string declaration_text(const TensorState& state);

}  // namespace tern::daemon
