#pragma once

// Sets of nodes and of local ranks are 64-bit masks; these and the kinds of ops are asked for in
// all of GroupOps' files.

#include <cstdint>

#include "shm/layout.h"
#include "wire/op_frames.h"

namespace tern::collective {

constexpr std::uint64_t bit(std::uint32_t index) noexcept { return std::uint64_t{1} << index; }
constexpr std::uint64_t low_bits(std::uint32_t count) noexcept {
  return count >= 64 ? ~std::uint64_t{0} : bit(count) - 1;
}

inline bool is_kind(const wire::AnnounceBody& body, shm::OpKind kind) noexcept {
  return body.kind == static_cast<std::uint16_t>(kind);
}

}  // namespace tern::collective
