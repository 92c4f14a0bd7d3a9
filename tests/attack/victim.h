#pragma once

// The job of another user that must not notice: two ranks, one at each of two daemons, whose every
// result is compared with what it must be.

#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/tern/tern.h"

namespace tern::attack {

struct Times {
  std::vector<std::uint64_t> ns;

  double quantile_ms(double part) const;
};

class Victim {
 public:
  // Connects both ranks. REQUIRES: two daemons.
  Victim(std::array<std::string, 2> sockets, std::string control_socket);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // Why it cannot work; empty if it can.
  const std::string& problem() const noexcept { return problem_; }
  // Works until stop(), on threads of its own.
  void start();
  // What was since start(): counts of what was done and of what failed, and times in milliseconds.
  nlohmann::json stop();

 private:
  struct Buffer {
    float* input = nullptr;
    float* output = nullptr;
    std::uint64_t count = 0;
  };
  struct Rank {
    tern_client* client = nullptr;
    tern_group* group = nullptr;
    Buffer small, large;
    tern_status status = TERN_OK;  // of what both ranks have done last
    std::uint64_t wrong = 0;
  };
  // Of rank 0, which keeps the books of both.
  struct Books {
    Times small, large, joins, versions;
    std::uint64_t ops = 0, lost = 0, wrong = 0;
    std::uint64_t joins_failed = 0, versions_failed = 0;
    std::string first_failure;
  };
  class Wakeup;

  std::string connect(Rank& rank, const std::string& socket);
  void work(std::size_t number);
  void join(std::size_t number);
  void run_ops(std::size_t number);
  bool run_op(std::size_t number, Buffer Rank::*buffer, Times& times);
  // Both ranks have come, and both with success.
  bool both_well();
  void ask_versions();

  std::string control_socket_, problem_;
  std::array<Rank, 2> ranks_;
  std::barrier<> both_{2};
  tern_group_id id_{};
  std::uint64_t seed_ = 0;  // of the next op's values
  Books books_;
  std::atomic<bool> stopping_{false};
  bool over_ = false;  // rank 0 has seen stopping_; read behind a barrier
  std::unique_ptr<Wakeup> wakeup_;
  std::vector<std::thread> threads_;
};

}  // namespace tern::attack
