#pragma once

#include <spdlog/spdlog.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "daemon/service/log.h"
#include "daemon/service/log_budget.h"

namespace tern::daemon {

// What a line is about. Each has a budget of its own: operations that fail without end hide nobody
// who comes and goes.
enum class LogTopic : std::uint8_t { clients, groups, ops, states, recipes };

// The lines of which a user may cause as many as it likes: those of each topic are limited, and the
// log says how many were left out.
class UserLog {
 public:
  struct Line {
    LogTopic topic = LogTopic::clients;
    std::uint32_t account = 0;  // the owner of the user who causes it (SubUsers)
    spdlog::level::level_enum level = spdlog::level::info;
    LogFields fields = {};
  };

  // REQUIRES: the clock outlives this.
  explicit UserLog(const Clock& clock) : clock_(clock) {}

  template <typename... Args>
  void write(const Line& line, spdlog::format_string_t<Args...> format, Args&&... args) {
    if (!budgets_[static_cast<std::size_t>(line.topic)].admits(line.account, clock_.now_ns())) {
      return;
    }
    log_about(line.fields, line.level, format, std::forward<Args>(args)...);
  }
  // Says how many lines of whom were left out; once a second at most.
  void tell_left_out();

 private:
  static constexpr std::size_t kTopics = 5;
  // Of each user: all of its clients may come at once, and go.
  static constexpr std::uint64_t kLinesAtOnce = 128;
  using Budget = LogBudget<std::uint32_t>;

  const Clock& clock_;
  std::array<Budget, kTopics> budgets_{Budget(kLinesAtOnce), Budget(kLinesAtOnce),
                                       Budget(kLinesAtOnce), Budget(kLinesAtOnce),
                                       Budget(kLinesAtOnce)};
  std::uint64_t tell_due_ns_ = 0;
};

}  // namespace tern::daemon
