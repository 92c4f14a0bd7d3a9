#pragma once

// The links of a lane: opened for groups and adopted from peers, shared among jobs, let go when no
// epoch uses them.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/lane/group_core.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/lane_peer.h"
#include "daemon/lane/lane_resources.h"
#include "daemon/lane/snapshot_table.h"
#include "net/link.h"
#include "net/transport.h"

namespace tern::daemon {

struct ReceivedPayload {
  net::PayloadPlace place;
  bool valid = true;  // its checksum is right
};

// Takes the frames of links, and hears of links that are gone.
class FrameSink {
 public:
  // False: the header breaks the protocol. Otherwise peer.receiving.group says who takes the frame.
  virtual bool place_frame(LanePeer& peer, const wire::FrameHeader& header,
                           net::PayloadPlace& place) = 0;
  // False: the frame breaks the protocol. `known`: a group has taken it.
  virtual bool take_frame(LanePeer& peer, const wire::FrameHeader& header,
                          const ReceivedPayload& payload, bool& known) = 0;
  virtual void abandon_frame(LanePeer& peer) = 0;
  // `superseded`: the link ended because its peer has begun another, or because one end had no
  // use for it.
  virtual void on_link_lost(LanePeer& peer, Errc reason, const char* text, bool superseded) = 0;

 protected:
  ~FrameSink() = default;
};

struct PeerSnapshot {
  wire::NodeId id;
  std::uint64_t group = 0;  // GroupSetup::link
  net::LinkState state{};
  std::uint8_t reserved[7] = {};
  net::LinkStats stats;
  std::uint64_t unacked_frames = 0;
  std::uint64_t failovers = 0;
  char carrier[16] = {};  // what frames travel on, and why not on another carrier
  char carrier_note[232] = {};
};

class LaneLinks final : public PeerSource, private net::LinkSink {
 public:
  // Memory that all links together may hold for frames that no peer has acknowledged. When it is
  // more, one of them gives way.
  static constexpr std::uint64_t kMostHeldBytes = 128 << 20;
  // 65 groups of 64 nodes.
  static constexpr std::size_t kSnapshots = 4096;

  // Everything given outlives this.
  LaneLinks(LaneResources& resources, net::Transport& transport, wire::NodeId self,
            FrameSink& sink);
  ~LaneLinks() override;
  LaneLinks(const LaneLinks&) = delete;
  LaneLinks& operator=(const LaneLinks&) = delete;

  LanePeer& peer(const wire::NodeId& id, std::uint64_t group,
                 const net::Endpoint& endpoint) override;
  void adopt(const command::AdoptConnection& command);
  int tick(std::uint64_t now_ns);
  void say_goodbye();
  // Closes what no epoch has used for a while, and forgets what is gone.
  int settle(std::uint64_t now_ns);
  std::uint64_t next_deadline_ns(std::uint64_t otherwise) const;
  std::vector<std::unique_ptr<LanePeer>>& all() noexcept { return peers_; }
  bool empty() const noexcept { return peers_.empty(); }

  // For peers(), and for the log where a carrier has changed.
  void publish();
  // Thread: any. The state of the links at the last publish(): of kSnapshots at most, and then of
  // those first that do not run.
  std::vector<PeerSnapshot> peers() const { return peer_table_.read(); }

 private:
  net::PayloadPlace place_payload(net::Link& link, const wire::FrameHeader& header) override;
  bool on_frame(net::Link& link, const wire::FrameHeader& header, const net::PayloadPlace& place,
                bool payload_valid) override;
  void on_abandoned(net::Link& link, const wire::FrameHeader& header,
                    const net::PayloadPlace& place) override;
  void on_acked(net::Link& link, std::uint64_t cookie) override;
  void on_lost(net::Link& link, Errc reason, const char* text) override;
  void on_breach(net::Link& link, const char* text) override;

  void publish(LanePeer& peer);
  int bound_memory();
  LanePeer& who_holds_most();
  LanePeer& peer_of(net::Link& link);
  void report_peer(const wire::NodeId& peer, const char* text);
  void tell_carrier(LanePeer& peer, const net::Carriage& carriage);

  LaneResources& resources_;
  net::Transport& transport_;
  wire::NodeId self_;
  FrameSink& sink_;
  SharedPlaces unasked_;  // of links that wait for a group
  std::vector<std::unique_ptr<LanePeer>> peers_;
  bool superseding_ = false;  // a link ends because its peer has begun another
  bool closing_ = false;      // this daemon has said goodbye
  std::vector<std::pair<wire::NodeId, std::string>> told_carriers_;  // the last line of each node
  SnapshotTable<PeerSnapshot, kSnapshots> peer_table_;
  std::vector<PeerSnapshot> peer_rows_;  // of the next snapshot; as many as there were links
};

}  // namespace tern::daemon
