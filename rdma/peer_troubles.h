#pragma once

// What set-ups and failures of connections leave behind for the next ones to the same peer.

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace tern::rdma {

struct PeerTrouble {
  std::uint64_t retry_at_ns = 0;
  std::uint64_t failovers = 0;
  std::uint32_t failures = 0;          // of the path to it, one after the other
  std::uint32_t abandoned = 0;         // offers to it, one after the other
  std::uint64_t unheard_until_ns = 0;  // see Attempts::may_await_end()
  std::string text;
};

// Of all connections of a transport. Peers are named by addresses, not by node ids, which are new
// after each restart: what is known of peers must not grow.
class PeerTroubles {
 public:
  PeerTrouble& of(const std::string& peer) { return troubles_[peer]; }
  // Null: there was none.
  const PeerTrouble* find(const std::string& peer) const noexcept {
    const auto found = troubles_.find(peer);
    return found == troubles_.end() ? nullptr : &found->second;
  }
  // Another device is in use: what paths of the old one did says nothing of its own.
  void forgive_paths() noexcept {
    for (auto& [peer, trouble] : troubles_) trouble.failures = 0;
  }
  // Forgets, once there are many, those that are over and that nobody is connected to.
  template <typename IsConnected>
  void forget_old(std::uint64_t now_ns, IsConnected&& is_connected) {
    if (troubles_.size() < kMany) return;
    std::erase_if(troubles_, [&](const auto& one) {
      const std::uint64_t until_ns = std::max(one.second.retry_at_ns, one.second.unheard_until_ns);
      return now_ns >= until_ns && !is_connected(one.first);
    });
  }
  std::size_t size() const noexcept { return troubles_.size(); }

  static constexpr std::size_t kMany = 256;

 private:
  std::unordered_map<std::string, PeerTrouble> troubles_;
};

}  // namespace tern::rdma
