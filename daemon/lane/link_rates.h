#pragma once

// What the links of one group on one lane can do, as the tuner sees it: written by the lane at the
// end of ops, read by the conductor at any time.

#include <atomic>
#include <cstdint>
#include <vector>

#include "daemon/lane/lane_ops.h"
#include "daemon/lane/lane_peer.h"

namespace tern::daemon {

// What the link to a node has delivered, at the end of the last op that the tuner chose for.
struct PeerRate {
  double bytes_per_s = 0.0;
  double round_trip_ns = 0.0;
  double inbound = 0.0;        // bytes per second from there, as the peer says
  double decode_strain = 1.0;  // what adding a block takes there by what it takes here
  bool limited = true;
};

class LinkRates {
 public:
  explicit LinkRates(std::uint32_t nodes) : cells_(nodes) {}

  // Thread: any.
  PeerRate of(std::uint32_t node) const noexcept;

  // Thread: the lane's. At the end of an op; of a small one nothing is learnt.
  // `sends_before_start`: contributions, with their announcements. `peers`: by node, null for this
  // one.
  void look(const LaneOp& op, bool sends_before_start, const std::vector<LanePeer*>& peers,
            std::uint64_t now_ns);

 private:
  struct Cell {
    std::atomic<double> bytes_per_s{0.0}, round_trip_ns{0.0}, inbound{0.0}, decode_strain{1.0};
    std::atomic<bool> limited{true};
  };

  static void compare_speed(LanePeer& peer, Cell& cell);

  std::vector<Cell> cells_;  // by node
};

}  // namespace tern::daemon
