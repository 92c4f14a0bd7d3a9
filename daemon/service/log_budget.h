#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace tern::daemon {

// Lines of which a party may cause as many as it likes: some at once, then one a second. It counts
// what is left out, so that the log can say so.
template <typename Party>
class LogBudget {
 public:
  // As many at once. REQUIRES: at least one.
  explicit LogBudget(std::uint64_t at_once) : at_once_(at_once) {}

  // Whether a line about it may be written now.
  bool admits(const Party& party, std::uint64_t now_ns) {
    std::erase_if(parties_, [&](const auto& one) {
      return one.second.left_out == 0 && spent(one.second, now_ns) == 0;
    });
    auto found = parties_.find(party);
    if (found == parties_.end()) {
      if (parties_.size() >= kMostParties) {
        ++others_left_out_;
        return false;
      }
      found = parties_.emplace(party, Account{}).first;
    }
    Account& account = found->second;
    const std::uint64_t before = spent(account, now_ns);
    if (before > (at_once_ - 1) * kEveryNs) {
      ++account.left_out;
      return false;
    }
    account.free_ns = now_ns + before + kEveryNs;
    return true;
  }

  // What was left out since this was asked last, by party.
  std::vector<std::pair<Party, std::uint64_t>> take_left_out() {
    std::vector<std::pair<Party, std::uint64_t>> taken;
    for (auto& [party, account] : parties_) {
      if (account.left_out != 0) taken.emplace_back(party, std::exchange(account.left_out, 0));
    }
    return taken;
  }
  // And of those beyond kMostParties, together.
  std::uint64_t take_others_left_out() { return std::exchange(others_left_out_, 0); }

  // Who comes back under another name is another party.
  static constexpr std::size_t kMostParties = 256;

 private:
  static constexpr std::uint64_t kEveryNs = 1'000'000'000;

  struct Account {
    std::uint64_t free_ns = 0;  // when all of the budget is there again
    std::uint64_t left_out = 0;
  };
  static std::uint64_t spent(const Account& account, std::uint64_t now_ns) {
    return account.free_ns > now_ns ? account.free_ns - now_ns : 0;
  }

  std::uint64_t at_once_;
  std::map<Party, Account> parties_;
  std::uint64_t others_left_out_ = 0;
};

}  // namespace tern::daemon
