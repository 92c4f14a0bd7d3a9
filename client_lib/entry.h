#pragma once

#include <cstdint>

#include "client_lib/op_table.h"
#include "client_lib/options.h"
#include "shm/layout.h"

namespace tern::client_lib {

// What lanes read of an op. REQUIRES: it has its sequence, and its memory has its places.
shm::SubmitEntry entry_of(const OpRequest& request, const Op& op, std::uint64_t ticket) noexcept;

}  // namespace tern::client_lib
