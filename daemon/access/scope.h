#pragma once

// Whose clients, groups and tensors a report shows.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace tern::daemon {

class Scope {
 public:
  static Scope of_all() noexcept { return Scope(std::nullopt); }
  static Scope of_user(std::uint32_t uid) noexcept { return Scope(uid); }

  bool has_all() const noexcept { return !user_; }
  bool has(std::uint32_t user) const noexcept { return !user_ || *user_ == user; }
  // What belongs to several users is shown to each.
  bool has(const std::vector<std::uint32_t>& users) const noexcept {
    return !user_ || std::find(users.begin(), users.end(), *user_) != users.end();
  }

 private:
  explicit Scope(std::optional<std::uint32_t> user) noexcept : user_(user) {}

  std::optional<std::uint32_t> user_;  // none: all
};

}  // namespace tern::daemon
