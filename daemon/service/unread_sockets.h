#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace tern::daemon {

// Sockets of connections that have ended while the other side holds packets that it has not read.
// The kernel counts the descriptors in these for the user who sent them (ETOOMANYREFS in
// sendmsg(2)): whoever collects them would have the daemon send no descriptors to anybody. So they
// count for the user who holds them, until he reads or closes.
//
// Not thread-safe.
class UnreadSockets {
 public:
  // Connections. The buffer of one has room for some 250 packets, each of which may have brought a
  // descriptor.
  static constexpr std::size_t kMostOfOne = 16;

  // Whether packets that were sent over the socket have not been read.
  static bool has_unread(const Fd& socket) noexcept;

  // False: the account's user is to get no new connection.
  bool has_room(std::uint32_t account) const;
  void keep(std::uint32_t account, Fd socket) { of_account_[account].push_back(std::move(socket)); }
  // Those of which nothing is unread any more, with their accounts; looks at all of them.
  std::vector<std::pair<std::uint32_t, Fd>> take_read();
  std::vector<std::pair<std::uint32_t, Fd>> take_all();
  bool empty() const noexcept { return of_account_.empty(); }

 private:
  std::map<std::uint32_t, std::vector<Fd>> of_account_;  // none is empty
};

}  // namespace tern::daemon
