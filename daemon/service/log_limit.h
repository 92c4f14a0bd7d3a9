#pragma once

#include <cstdint>
#include <map>

namespace tern::daemon {

// What somebody is refused may be refused to him a thousand times a second: the counters have all
// of it, the log a line a second about each party.
template <typename Party>
class LogLimit {
 public:
  // Whether a line about it may be written now.
  bool admits(const Party& party, std::uint64_t now_ns) {
    std::erase_if(last_ns_, [now_ns](const auto& one) { return now_ns - one.second >= kEveryNs; });
    return last_ns_.size() < kMostParties && last_ns_.emplace(party, now_ns).second;
  }

 private:
  static constexpr std::uint64_t kEveryNs = 1'000'000'000;
  // Who comes back under another name is another party.
  static constexpr std::size_t kMostParties = 64;
  std::map<Party, std::uint64_t> last_ns_;
};

}  // namespace tern::daemon
