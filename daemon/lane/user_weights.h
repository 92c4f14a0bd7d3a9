#pragma once

// How something is divided among jobs: among their users first, each of whom weighs as much as his
// heaviest job, and then among the jobs of each. So a user with many jobs has no more of it than
// one who has a single job of that weight.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tern::daemon {

// In each round: to count bits is a call on processors of which no instruction for it is asked.
constexpr bool has_several_bits(std::uint64_t bits) noexcept { return (bits & (bits - 1)) != 0; }

class UserWeights {
 public:
  struct Job {
    std::uint32_t account = 0;  // whose it is
    std::uint32_t weight = 1;
  };

  void add(const Job& job) noexcept {
    Jobs& jobs = of_user_[job.account % kUsers];
    users_ |= std::uint64_t{1} << (job.account % kUsers);
    jobs.weight += job.weight;
    if (job.weight <= jobs.heaviest) return;
    all_ += job.weight - jobs.heaviest;
    jobs.heaviest = job.weight;
  }
  void clear() noexcept {
    for (; users_ != 0; users_ &= users_ - 1) {
      of_user_[static_cast<std::size_t>(std::countr_zero(users_))] = {};
    }
    all_ = 0;
  }

  // Two that are taken for one share as jobs of one user do.
  bool several_users() const noexcept { return has_several_bits(users_); }

  // What the job has of `count`. One that has not been added has at most what it weighs against all
  // users.
  template <typename Number>
  Number part_of(Number count, const Job& job) const noexcept {
    const Jobs& jobs = of_user_[job.account % kUsers];
    const auto number = [](std::uint64_t value) { return static_cast<Number>(value); };
    if (all_ == 0) return count;
    if (jobs.weight == 0) return std::min(count, count * number(job.weight) / number(all_));
    const Number part = count * number(jobs.heaviest) / number(all_);
    return std::min(part, count * number(jobs.heaviest * job.weight) / number(all_ * jobs.weight));
  }
  // What his user has of it.
  template <typename Number>
  Number part_of_user(Number count, std::uint32_t account) const noexcept {
    const Jobs& jobs = of_user_[account % kUsers];
    if (all_ == 0 || jobs.weight == 0) return count;
    return count * static_cast<Number>(jobs.heaviest) / static_cast<Number>(all_);
  }

 private:
  static constexpr std::size_t kUsers = 64;
  struct Jobs {
    std::uint64_t weight = 0;  // of all
    std::uint64_t heaviest = 0;
  };
  std::array<Jobs, kUsers> of_user_{};
  std::uint64_t users_ = 0;  // a bit for each that has jobs here
  std::uint64_t all_ = 0;    // of all users
};

}  // namespace tern::daemon
