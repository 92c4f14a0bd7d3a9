#include "daemon/lane/link_rates.h"

#include <algorithm>

namespace tern::daemon {
namespace {

// An op that sends less than this shows nothing of a link.
constexpr std::uint64_t kRateBytes = 64 << 10;

constexpr auto kRelaxed = std::memory_order_relaxed;

double rate_of(std::uint64_t bytes, std::uint64_t ns) noexcept {
  return ns == 0 ? 0.0 : 1e9 * static_cast<double>(bytes) / static_cast<double>(ns);
}

}  // namespace

PeerRate LinkRates::of(std::uint32_t node) const noexcept {
  const Cell& cell = cells_[node];
  return {cell.bytes_per_s.load(kRelaxed), cell.round_trip_ns.load(kRelaxed),
          cell.inbound.load(kRelaxed), cell.decode_strain.load(kRelaxed),
          cell.limited.load(kRelaxed)};
}

// One look at the carrier of each peer. A carrier may take itself for full in a short burst; a link
// has been full only if what went over it, in this op or since the last look, comes near the rate
// that it claims.
void LinkRates::look(const LaneOp& op, bool sends_before_start, const std::vector<LanePeer*>& peers,
                     std::uint64_t now_ns) {
  constexpr double kFull = 0.6;
  constexpr double kImpossible = 1.2;
  if (op.bytes_raw < kRateBytes || peers.size() < 2) return;
  std::uint64_t slowest = 0;  // of what full links have shown
  // What was sent before the op began says nothing of the time after it.
  const double op_rate = op.started_ns == 0 || sends_before_start
                             ? 0.0
                             : rate_of(op.bytes_sent / (peers.size() - 1), now_ns - op.started_ns);
  for (std::size_t node = 0; node < peers.size(); ++node) {
    if (peers[node] == nullptr || !peers[node]->link) continue;
    LanePeer& peer = *peers[node];
    const net::DeliveryRate rate = peer.link->delivery_rate();
    const std::uint64_t bytes = peer.link->stats().bytes_sent;
    const double used = std::max(op_rate, rate_of(bytes - peer.rate_bytes, now_ns - peer.rate_ns));
    peer.rate_bytes = bytes;
    peer.rate_ns = now_ns;
    const bool limited =
        rate.limited || used < kFull * rate.bytes_per_s || op_rate > kImpossible * rate.bytes_per_s;
    Cell& cell = cells_[node];
    // A carrier that does not know its rate has at least had that of the op.
    cell.bytes_per_s.store(std::max(rate.bytes_per_s, op_rate), kRelaxed);
    cell.limited.store(limited, kRelaxed);
    cell.round_trip_ns.store(static_cast<double>(rate.round_trip_ns), kRelaxed);
    // What a sender with little to send has seen of its link is no news to others.
    const auto delivered = static_cast<std::uint64_t>(rate.bytes_per_s);
    if (!limited && (slowest == 0 || delivered < slowest)) slowest = delivered;
    cell.inbound.store(static_cast<double>(peer.link->stats().peer_delivers), kRelaxed);
    compare_speed(peer, cell);
  }
  // An op waits for the slowest link of all, whoever is at its ends.
  for (LanePeer* const peer : peers) {
    if (peer != nullptr && peer->link) peer->link->report_delivered(slowest);
  }
}

// By what both sides have taken for the other's blocks since the last look, which are mostly of the
// same recipe.
void LinkRates::compare_speed(LanePeer& peer, Cell& cell) {
  constexpr std::uint64_t kEnoughBytes = 1 << 20;
  constexpr double kWeight = 0.2;
  peer.work.peer_ns = peer.link->stats().peer_decode_ns;
  const LanePeer::Work& now = peer.work;
  const LanePeer::Work& seen = peer.work_seen;
  if (now.sent_bytes < seen.sent_bytes + kEnoughBytes ||
      now.added_bytes < seen.added_bytes + kEnoughBytes || now.peer_ns <= seen.peer_ns ||
      now.added_ns <= seen.added_ns) {
    return;
  }
  const auto per_byte = [](std::uint64_t ns, std::uint64_t bytes) {
    return static_cast<double>(ns) / static_cast<double>(bytes);
  };
  const double there = per_byte(now.peer_ns - seen.peer_ns, now.sent_bytes - seen.sent_bytes);
  const double here = per_byte(now.added_ns - seen.added_ns, now.added_bytes - seen.added_bytes);
  const double last = cell.decode_strain.load(kRelaxed);
  const double strain = std::clamp(there / here, 0.125, 8.0);
  cell.decode_strain.store(last + kWeight * (strain - last), kRelaxed);
  peer.work_seen = peer.work;
}

}  // namespace tern::daemon
