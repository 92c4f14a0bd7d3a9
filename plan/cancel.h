#pragma once

// The entry that cancels an op. It is no operation: it has no plan, and no completion of its own.

#include <cstdint>

#include "shm/layout.h"

namespace tern::plan {

inline shm::SubmitEntry cancel_entry(std::uint64_t ticket, std::uint64_t group) noexcept {
  shm::SubmitEntry entry{};
  entry.kind = static_cast<std::uint16_t>(shm::OpKind::cancel);
  entry.ticket = ticket;
  entry.group = group;
  return entry;
}

inline bool cancels(const shm::SubmitEntry& entry) noexcept {
  return entry.kind == static_cast<std::uint16_t>(shm::OpKind::cancel);
}

}  // namespace tern::plan
