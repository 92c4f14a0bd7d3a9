#pragma once

// An executor as a device might be one: blocks are done late, one at a time and in a random order.
// Half of them are carried out when they are completed and not when they are submitted, so that
// memory which a lane has given away too early shows.

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/lane/block_path.h"

namespace tern::sim {

class LateExecutor final : public daemon::BlockExecutor {
 public:
  explicit LateExecutor(std::uint64_t seed) : state_(seed * 2 + 1) {}

  void start(daemon::BlockPath& path, std::uint32_t slot) override {
    Pending pending{&path, slot, std::nullopt};
    if (draw(2) == 0) pending.done = path.perform(slot);
    pending_.push_back(pending);
  }

  int poll() override {
    if (pending_.empty()) return 0;
    if (draw(3) != 0) complete(draw(pending_.size()));
    return 1;
  }

  void drain(daemon::BlockPath& path) override {
    for (std::size_t i = 0; i < pending_.size();) {
      if (pending_[i].path == &path) {
        complete(i);
        i = 0;
      } else {
        ++i;
      }
    }
  }

 private:
  struct Pending {
    daemon::BlockPath* path = nullptr;
    std::uint32_t slot = 0;
    std::optional<daemon::BlockCompletion> done;
  };

  std::size_t draw(std::size_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state_ >> 33) % bound;
  }

  void complete(std::size_t index) {
    const Pending pending = pending_[index];
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
    pending.path->complete(pending.slot,
                           pending.done ? *pending.done : pending.path->perform(pending.slot));
  }

  std::uint64_t state_;
  std::vector<Pending> pending_;
};

}  // namespace tern::sim
