#include "client_lib/arena_memory.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

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

namespace {

std::optional<std::uint64_t> offset_in(std::span<const std::byte> whole,
                                       std::span<const std::byte> part, DType dtype) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const auto first = reinterpret_cast<std::uintptr_t>(whole.data());
  if (begin < first || begin - first > whole.size()) return std::nullopt;
  const std::uint64_t offset = begin - first;
  if (part.size() > whole.size() - offset || offset % dtype_bytes(dtype) != 0) return std::nullopt;
  return offset;
}

std::span<const std::byte> bytes_at(const void* memory, std::uint64_t bytes) noexcept {
  return {static_cast<const std::byte*>(memory), bytes};
}

}  // namespace

std::optional<std::uint64_t> ArenaMemory::offset_of(const void* memory, std::uint64_t bytes,
                                                    DType dtype) const noexcept {
  return offset_in(memory_, bytes_at(memory, bytes), dtype);
}

std::optional<Place> ArenaMemory::locate(const OpRequest& request, const void* memory,
                                         std::uint64_t bytes) const noexcept {
  if (const auto offset = offset_of(memory, bytes, request.dtype)) return Place{0, *offset};
  if (request.plan != nullptr && request.plan->passes()) return std::nullopt;
  for (const RegionMemory& region : regions_) {
    const auto offset = offset_in(region.memory, bytes_at(memory, bytes), request.dtype);
    if (offset) return Place{region.number, *offset};
  }
  return std::nullopt;
}

void ArenaMemory::remove_region(std::uint32_t number) {
  std::erase_if(regions_, [number](const RegionMemory& one) { return one.number == number; });
}

namespace {

// In a block for copies of so many elements.
struct CopyPlaces {
  std::uint64_t count = 0;
  std::uint64_t input = 0;
  std::uint64_t output = 0;
};

// An element of the op that both hold has one place, so that the op runs in place in the block.
CopyPlaces places_of(const plan::Range& input, const plan::Range& output) noexcept {
  if (input.count == 0 || output.count == 0) return {input.count + output.count, 0, 0};
  const std::uint64_t begin = std::min(input.begin, output.begin);
  const std::uint64_t end = std::max(input.end(), output.end());
  if (end - begin >= input.count + output.count) {
    return {input.count + output.count, 0, input.count};
  }
  return {end - begin, input.begin - begin, output.begin - begin};
}

}  // namespace

Status ArenaMemory::place_copies(const OpRequest& request, Op& op) {
  // Memory without bytes has no place and needs none.
  const auto place = [&](const void* memory, std::uint64_t bytes, Place& at) {
    const auto found = bytes == 0 ? Place{} : locate(request, memory, bytes);
    at = found.value_or(Place{});
    return found.has_value();
  };
  const plan::Extents& extents = op.extents;
  const bool input_outside = !place(request.input, op.input_bytes, op.input_at);
  const bool output_outside = !place(request.output, op.output_bytes, op.output_at);
  if (request.has_blocks() && (input_outside || output_outside)) {
    return fail(Errc::invalid_argument,
                "the slots of blocks must lie in memory of tern_alloc or tern_region_create");
  }
  if (input_outside || output_outside) {
    const std::size_t element = dtype_bytes(request.dtype);
    const CopyPlaces places = places_of(input_outside ? extents.input : plan::Range{},
                                        output_outside ? extents.output : plan::Range{});
    if (Status placed = place_elements(request, places.count * element, op); !placed) return placed;
    if (input_outside) {
      op.input_copy = op.copies + places.input * element;
      op.input_at = {op.copies_region, op.input_copy};
      op.input = request.input;
    }
    if (output_outside) {
      op.output_copy = op.copies + places.output * element;
      op.output_at = {op.copies_region, op.output_copy};
      op.output = request.output;
    }
  }
  return request.counts != nullptr ? copy_counts(request, op) : Status{};
}

// In a region if the arena has no room; what passes from rank to rank has to lie in the arena.
Status ArenaMemory::place_elements(const OpRequest& request, std::uint64_t bytes, Op& op) {
  const Result<std::uint64_t> block = allocate_copy(bytes);
  if (block) {
    op.copies = *block;
    op.copied = memory_.data();
    return {};
  }
  if (arena_.fits(bytes) || (request.plan != nullptr && request.plan->passes())) {
    return tl::unexpected(block.error());
  }
  const std::optional<CopyRegions::Place> place = copy_regions_.allocate(bytes);
  if (!place) {
    // What is larger than the arena has nothing to wait for.
    const bool never_fits = bytes > memory_.size();
    if (never_fits || copies_of_others_ == 0) missing_bytes_ += Arena::rounded(bytes);
    return tl::unexpected(block.error());
  }
  op.copies = place->offset;
  op.copies_region = place->region;
  op.copied = place->memory;
  ++copies_in_use_;
  return {};
}

Status ArenaMemory::copy_counts(const OpRequest& request, Op& op) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(request.group->size) *
                              (request.plan->has_pairs() ? 2 : 1) * sizeof(*request.counts);
  const Result<std::uint64_t> block = allocate_copy(bytes);
  if (!block) {
    free_copies(op);
    return tl::unexpected(block.error());
  }
  op.counts_copy = *block;
  std::memcpy(at(*block), request.counts, bytes);
  return {};
}

Result<std::uint64_t> ArenaMemory::allocate_copy(std::uint64_t bytes) {
  const std::optional<std::uint64_t> block = arena_.allocate(bytes);
  if (!block) {
    const bool may_wait = copies_of_others_ != 0;
    return fail(may_wait ? Errc::would_block : Errc::out_of_memory,
                "no room in the arena for a copy of " + std::to_string(bytes) + " bytes; " +
                    (may_wait ? "wait for operations, " : "nothing that ends will make room: ") +
                    "free tensors or raise arena_bytes");
  }
  if (Status populated = populate(*block, bytes); !populated) {
    arena_.free(*block);
    return tl::unexpected(populated.error());
  }
  ++copies_in_use_;
  return *block;
}

void ArenaMemory::place_progress(const shm::CopyProgress::Shape& shape, Op& op) {
  const Result<std::uint64_t> block = allocate_copy(shape.bytes());
  if (!block) return;
  op.progress_copy = *block;
  std::memset(at(*block), 0, shape.bytes());
  op.progress = {at(*block), shape};
  if (op.output_copy != kNoOffset) {
    op.delivery.begin(op.progress, {op.copied + op.output_copy, op.output, op.output_bytes});
  }
}

void ArenaMemory::free_copies(Op& op) noexcept {
  if (op.copies_region != 0) {
    copy_regions_.free(std::exchange(op.copies_region, 0), std::exchange(op.copies, kNoOffset));
    --copies_in_use_;
  }
  for (std::uint64_t* const block : {&op.copies, &op.counts_copy, &op.progress_copy}) {
    if (*block == kNoOffset) continue;
    arena_.free(*block);
    --copies_in_use_;
    *block = kNoOffset;
  }
  op.input_copy = kNoOffset;
  op.output_copy = kNoOffset;
}

}  // namespace tern::client_lib
