#pragma once

// When a connection tries RDMA, and when again after it failed.

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "rdma/peer_troubles.h"
#include "rdma/rdma_settings.h"

namespace tern::rdma {

// What an attempt failed by. A path is tried ever more rarely, since frames wait meanwhile.
enum class Fault : std::uint8_t { ours, path };

// One connection's attempts; what they say of the peer is kept in `troubles`, which outlives them,
// as the clock and the settings do. Thread: the lane's.
class Attempts {
 public:
  // `peer` is the key of what is known of the peer.
  Attempts(PeerTroubles& troubles, std::string peer, const Clock& clock,
           const RdmaSettings& settings);

  const std::string& peer() const noexcept { return peer_; }
  // Of connections to the peer, this one's included.
  std::uint64_t failovers() const noexcept;
  // Why the peer was last given up.
  const std::string& trouble() { return troubles_.of(peer_).text; }

  // A failure is too fresh for another attempt. Where RDMA is required there is nothing else to do
  // meanwhile, and no attempt waits.
  bool must_wait(Choice choice) const;
  // An offer of ours waits as long as any connection to the peer would.
  void wait() { retry_at_ns_ = troubles_.of(peer_).retry_at_ns; }
  // It is time for another offer of ours.
  bool is_due() const { return retry_at_ns_ != 0 && clock_.now_ns() >= retry_at_ns_; }
  // False: the peer offers too often. Each offer that is taken costs a queue pair with its memory.
  bool may_take_offer();

  // Whether the end of a connection may wait for what was sent last. Who did not take it lately may
  // be gone, or may mean to hold us up.
  bool may_await_end() const;
  void note_unheard_end();

  void note_failure(const std::string& why, Fault fault);
  // An offer of ours was declined, or its connection has ended meanwhile. Each of these has cost a
  // queue pair with its memory; after some of them, one after the other, the next offers wait.
  void note_abandoned(const std::string& why);
  void note_failover() { ++troubles_.of(peer_).failovers; }
  // The peer has declined an offer of ours.
  void note_decline(Fault of_peer);
  // Frames travel over RDMA from now on.
  void note_opened();
  // The connection ends, and not by a fault of RDMA.
  void note_good_end();

 private:
  bool has_worked() const;

  PeerTroubles& troubles_;
  std::string peer_;
  const Clock& clock_;
  const RdmaSettings& settings_;
  std::uint64_t retry_at_ns_ = 0;    // when to offer again; 0: never
  std::uint64_t next_offer_ns_ = 0;  // before that none of the peer's is taken
  std::uint64_t opened_ns_ = 0;      // when it moved to RDMA
  std::uint32_t declines_ = 0;       // of our offers by the peer, one after the other
};

}  // namespace tern::rdma
