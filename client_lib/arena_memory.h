#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "client_lib/arena.h"
#include "client_lib/copy_regions.h"
#include "client_lib/options.h"

namespace tern::client_lib {

// The memory that the daemon sees: what the application has allocated there, and copies of what it
// has elsewhere, for as long as an op needs them. Copies that find no room in the arena lie in
// regions. Pages behind what is given out are found by this process, so that its control group pays
// for them, and a machine without memory is an error here and no signal there. Guarded by: the
// client's mutex, but for at() and offset_of().
class ArenaMemory {
 public:
  explicit ArenaMemory(std::span<std::byte> memory)
      : memory_(memory),
        arena_(memory.size()),
        populated_((memory.size() + kGranuleBytes - 1) / kGranuleBytes) {}

  Result<void*> allocate(std::uint64_t bytes);
  Status free(void* memory);

  std::byte* at(std::uint64_t offset) const noexcept { return memory_.data() + offset; }
  // Memory that the daemon has made beside the arena.
  void add_region(std::uint32_t number, std::span<std::byte> memory) {
    regions_.push_back({number, memory});
  }
  // From now on it lies outside.
  void remove_region(std::uint32_t number);

  // The place of memory that the daemon can use where it is. Memory without its type's alignment is
  // copied like any outside; so is that of a region, of what passes from rank to rank.
  std::optional<Place> locate(const OpRequest& request, const void* memory,
                              std::uint64_t bytes) const noexcept;
  // The same in the arena alone.
  std::optional<std::uint64_t> offset_of(const void* memory, std::uint64_t bytes,
                                         DType dtype) const noexcept;

  // Before the first op of a submission.
  void begin_submission() noexcept {
    copies_of_others_ = copies_in_use_;
    missing_bytes_ = 0;
  }
  // Room for what of the op lies outside, and a copy of its counts. Their places are noted in `op`;
  // would_block while copies of other submissions may give room back.
  Status place_copies(const OpRequest& request, Op& op);
  // Of an op with copies, how far they have come; without room for it there is none.
  void place_progress(const shm::CopyProgress::Shape& shape, Op& op);
  void free_copies(Op& op) noexcept;
  // What the copies of this submission that have found no room would need of a region.
  std::uint64_t missing_bytes() const noexcept { return missing_bytes_; }
  CopyRegions& copy_regions() noexcept { return copy_regions_; }

 private:
  // Memory for a granule is found when something of it is first given out.
  static constexpr std::uint64_t kGranuleBytes = 256 << 10;
  Status populate(std::uint64_t offset, std::uint64_t bytes);
  Result<std::uint64_t> allocate_copy(std::uint64_t bytes);
  Status place_elements(const OpRequest& request, std::uint64_t bytes, Op& op);
  Status copy_counts(const OpRequest& request, Op& op);

  struct RegionMemory {
    std::uint32_t number;
    std::span<std::byte> memory;
  };

  std::span<std::byte> memory_;
  std::vector<RegionMemory> regions_;
  Arena arena_;
  std::vector<bool> populated_;  // granules
  std::uint64_t copies_in_use_ = 0;
  std::uint64_t copies_of_others_ = 0;  // when this submission began
  std::uint64_t missing_bytes_ = 0;
  CopyRegions copy_regions_;
};

}  // namespace tern::client_lib
