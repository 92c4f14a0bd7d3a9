#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tern::daemon {

// Whose a user is, in the sense of subuid(5): a user may run programs as any of a range of further
// users, by user namespaces, and would have the share of each. What is counted for a user is
// counted for its owner.
class SubUsers {
 public:
  SubUsers() = default;
  // A user in several ranges is in the one that begins first. Lines that cannot be read, and owners
  // that this machine does not know, are left out. A file that is missing is an empty one. May ask
  // the name service, and wait for it.
  static SubUsers read(const std::string& path = "/etc/subuid");

  // The user itself, if it is nobody's.
  std::uint32_t owner_of(std::uint32_t user) const noexcept;

 private:
  struct Range {
    std::uint64_t first = 0, end = 0;
    std::uint32_t owner = 0;
  };

  std::vector<Range> ranges_;  // in order, without a user in common
};

}  // namespace tern::daemon
