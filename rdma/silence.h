#pragma once

#include <cstdint>

namespace tern::rdma {

// For how long something has been under way on a queue pair while nothing has come or gone.
class Silence {
 public:
  // At each look: whether nothing is under way, and a number that changes with all that completes
  // or arrives. The clock is asked only when a silence begins.
  template <typename Now>
  void look(bool is_idle, std::uint64_t progress, Now&& now_ns) {
    if (is_idle || progress != progress_) {
      progress_ = progress;
      since_ns_ = 0;
    } else if (since_ns_ == 0) {
      since_ns_ = now_ns();
    }
  }
  bool lasts(std::uint64_t now_ns, std::uint64_t limit_ns) const noexcept {
    return since_ns_ != 0 && now_ns >= since_ns_ + limit_ns;
  }

 private:
  std::uint64_t progress_ = 0;
  std::uint64_t since_ns_ = 0;  // zero: there is none
};

}  // namespace tern::rdma
