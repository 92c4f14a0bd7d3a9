#pragma once

#include <cstdint>

#include "client_lib/arena_memory.h"
#include "client_lib/op_table.h"
#include "client_lib/options.h"
#include "shm/layout.h"

namespace tern::client_lib {

// What lanes read of an op. REQUIRES: it has its sequence, and its copies their places in the arena
// or beside it.
shm::SubmitEntry entry_of(const OpRequest& request, const Op& op, std::uint64_t ticket,
                          const ArenaMemory& arena) noexcept;

}  // namespace tern::client_lib
