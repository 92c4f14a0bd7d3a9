#include "client_lib/arena_memory.h"

#include <algorithm>
#include <string>

#include "shm/segment.h"

namespace tern::client_lib {

Result<void*> ArenaMemory::allocate(std::uint64_t bytes) {
  const std::optional<std::uint64_t> offset = arena_.allocate(bytes);
  if (!offset) {
    return fail(Errc::out_of_memory,
                "no " + std::to_string(bytes) + " bytes in one piece in the arena: " +
                    std::to_string(arena_.used_bytes()) + " of " + std::to_string(memory_.size()) +
                    " are in use; connect with a larger arena_bytes");
  }
  if (Status populated = populate(*offset, bytes); !populated) {
    arena_.free(*offset);
    return tl::unexpected(populated.error());
  }
  return at(*offset);
}

Status ArenaMemory::populate(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = (offset + bytes + kGranuleBytes - 1) / kGranuleBytes;
  for (std::uint64_t first = offset / kGranuleBytes; first < end; ++first) {
    std::uint64_t last = first;
    while (last < end && !populated_[last]) ++last;
    if (last == first) continue;
    const std::uint64_t begin_byte = first * kGranuleBytes;
    const std::uint64_t end_byte = std::min<std::uint64_t>(last * kGranuleBytes, memory_.size());
    Status found = shm::populate(memory_.subspan(begin_byte, end_byte - begin_byte));
    if (!found) return found;
    for (; first < last; ++first) populated_[first] = true;
  }
  return {};
}

Status ArenaMemory::free(void* memory) {
  const std::optional<std::uint64_t> offset = offset_of(memory, 1, DType::u8);
  if (!offset) {
    return fail(Errc::invalid_argument, "the memory is not from tern_alloc of this client");
  }
  if (!arena_.free(*offset)) {
    return fail(Errc::invalid_argument, "the memory was not allocated, or is free already");
  }
  return {};
}

std::optional<std::uint64_t> ArenaMemory::offset_of(const void* memory, std::uint64_t bytes,
                                                    DType dtype) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto arena = reinterpret_cast<std::uintptr_t>(memory_.data());
  if (begin < arena || begin - arena > memory_.size()) return std::nullopt;
  const std::uint64_t offset = begin - arena;
  if (bytes > memory_.size() - offset || offset % dtype_bytes(dtype) != 0) return std::nullopt;
  return offset;
}

// An output outside the arena gets one copy, which also holds the input if that is outside as well:
// the op then runs in place in the copy.
Status ArenaMemory::place_copies(const OpRequest& request, Op& op) {
  const auto outside = [&](const void* memory, std::uint64_t bytes) {
    return bytes != 0 && !offset_of(memory, bytes, request.dtype).has_value();
  };
  const bool input_outside = outside(request.input, op.input_bytes);
  const bool output_outside = outside(request.output, op.output_bytes);
  if (!input_outside && !output_outside) return {};
  const std::uint64_t bytes =
      std::max(input_outside ? op.input_bytes : 0, output_outside ? op.output_bytes : 0);
  const std::optional<std::uint64_t> copy = arena_.allocate(bytes);
  if (!copy) {
    return fail(copies_in_use_ != 0 ? Errc::would_block : Errc::out_of_memory,
                "no room in the arena for a copy of " + std::to_string(bytes) +
                    " bytes; wait for operations, free tensors or raise arena_bytes");
  }
  if (Status populated = populate(*copy, bytes); !populated) {
    arena_.free(*copy);
    return populated;
  }
  ++copies_in_use_;
  if (input_outside) op.input_copy = *copy;
  if (output_outside) {
    op.output_copy = *copy;
    op.output = request.output;
  }
  return {};
}

void ArenaMemory::free_copies(Op& op) noexcept {
  const std::uint64_t copy = op.output_copy != kNoOffset ? op.output_copy : op.input_copy;
  if (copy == kNoOffset) return;
  arena_.free(copy);
  --copies_in_use_;
  op.input_copy = kNoOffset;
  op.output_copy = kNoOffset;
}

}  // namespace tern::client_lib
