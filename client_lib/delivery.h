#pragma once

// The way of a result from the arena to memory outside it. Lanes list the pieces that they have
// delivered, and whoever waits for the op copies these while the rest is under way.

#include <array>
#include <cstdint>
#include <vector>

#include "shm/copy_progress.h"

namespace tern::client_lib {

class Delivery {
 public:
  // What is copied, and where to.
  struct Memory {
    const std::byte* from = nullptr;
    void* to = nullptr;
    std::uint64_t bytes = 0;
  };

  // Allocates; nothing below does.
  void begin(const shm::CopyProgress& progress, const Memory& memory);

  // Lanes have listed more than has been copied.
  bool has_more() const noexcept;
  void copy_listed() noexcept;
  // All that has not been copied of the first `bytes`. REQUIRES: the op has ended well.
  void copy_rest(std::uint64_t bytes) noexcept;

 private:
  void copy(const shm::DeliveredRecord& piece) noexcept;

  shm::CopyProgress progress_;
  Memory memory_;
  std::array<std::uint32_t, shm::kMaxLanes> taken_{};  // records, by lane
  std::vector<shm::DeliveredRecord> copied_;           // never beyond its capacity
};

}  // namespace tern::client_lib
