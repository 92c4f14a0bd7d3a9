#include "daemon/service/unread_sockets.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <iterator>

namespace tern::daemon {

bool UnreadSockets::has_unread(const Fd& socket) noexcept {
  int bytes = 0;
  return ::ioctl(socket.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

bool UnreadSockets::has_room(std::uint32_t account) const {
  const auto found = of_account_.find(account);
  return found == of_account_.end() || found->second.size() < kMostOfOne;
}

std::vector<std::pair<std::uint32_t, Fd>> UnreadSockets::take_read() {
  std::vector<std::pair<std::uint32_t, Fd>> read;
  for (auto it = of_account_.begin(); it != of_account_.end();) {
    auto& sockets = it->second;
    const auto from = std::stable_partition(sockets.begin(), sockets.end(), has_unread);
    for (auto one = from; one != sockets.end(); ++one)
      read.emplace_back(it->first, std::move(*one));
    sockets.erase(from, sockets.end());
    it = sockets.empty() ? of_account_.erase(it) : std::next(it);
  }
  return read;
}

std::vector<std::pair<std::uint32_t, Fd>> UnreadSockets::take_all() {
  std::vector<std::pair<std::uint32_t, Fd>> all;
  for (auto& [account, sockets] : of_account_) {
    for (Fd& socket : sockets) all.emplace_back(account, std::move(socket));
  }
  of_account_.clear();
  return all;
}

}  // namespace tern::daemon
