#include "daemon/service/user_log.h"

namespace tern::daemon {

void UserLog::tell_left_out() {
  constexpr std::uint64_t kTellEveryNs = 1'000'000'000;
  constexpr std::array<const char*, kTopics> kNames{
      "clients that came or went", "groups", "operations that failed",
      "codec states that were reset", "recipes of tensors"};
  const std::uint64_t now = clock_.now_ns();
  if (now < tell_due_ns_) return;
  tell_due_ns_ = now + kTellEveryNs;
  for (std::size_t topic = 0; topic < kTopics; ++topic) {
    for (const auto& [uid, count] : budgets_[topic].take_left_out()) {
      spdlog::info("{} more lines about {} were left out: uid {}", count, kNames[topic], uid);
    }
    if (const std::uint64_t count = budgets_[topic].take_others_left_out(); count != 0) {
      spdlog::info("{} more lines about {} were left out: other users", count, kNames[topic]);
    }
  }
}

}  // namespace tern::daemon
