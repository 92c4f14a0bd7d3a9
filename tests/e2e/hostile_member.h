#pragma once

// What has the id of a group, and with it the right to join, but is no daemon: it proves itself,
// takes its place among the group's nodes, and from then on sends what it likes under the group's
// token. All by hand, on one lane.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/membership/group_id.h"
#include "tests/e2e/hostile_peer.h"
#include "wire/op_frames.h"

namespace tern::e2e {

class HostileMember {
 public:
  static constexpr std::uint64_t kChunkBytes = 16 << 10;

  // `features` of its hellos. `eager_bytes`: what it says of how large an op may be that travels
  // with its announcements; more than 0, and it says that blocks may do so too.
  explicit HostileMember(std::uint64_t features = 0, std::uint64_t eager_bytes = 0)
      : features_(features), eager_bytes_(eager_bytes) {}

  // Joins as the only rank of a node of its own, and returns when the epoch has begun. Empty, or
  // what went wrong. `node` is any number that no other member has used. Members of one group join
  // at the same time, each in a thread of its own, and have no links to each other.
  std::string join(const std::string& group_id, std::uint64_t node, std::uint32_t rank,
                   std::uint32_t size);

  std::uint32_t node() const noexcept { return node_; }
  std::uint32_t nodes() const noexcept { return static_cast<std::uint32_t>(lanes_.size()); }
  // Of a frame that is the group's.
  wire::FrameHeader header() const;
  // Asks the coordinator to split the group, as if it had been split so often, and does not wait for
  // the answer. False: the coordinator has closed.
  bool split(std::int64_t sequence);
  // Its link to the lane of another node. REQUIRES: that is a daemon.
  HostilePeer& lane(std::uint32_t node) { return *lanes_[node]; }

  // What it knows of the op that the other nodes have announced.
  struct Op {
    wire::FrameHeader header;  // names the op; of this node, with the group's token
    wire::AnnounceBody said;
    std::vector<std::uint32_t> chunks_of(std::uint32_t owner, std::uint32_t nodes) const;
  };
  // Waits until every other node has announced the same op.
  std::optional<Op> wait_for_announcements();
  // Announces to all what they have announced, so that the op begins.
  bool announce(const Op& op);
  // The next frame of that kind from the node; others are skipped.
  std::optional<HostilePeer::Received> wait_for(std::uint32_t node, wire::FrameKind kind);

 private:
  std::optional<nlohmann::json> wait_for(const std::string& type);
  std::string open_lanes(const nlohmann::json& members);

  std::string nonce() const;
  nlohmann::json join_message(const std::string& uid, std::uint32_t size) const;

  std::uint64_t features_;
  std::uint64_t eager_bytes_;
  daemon::GroupId id_;
  std::uint64_t number_ = 0;  // of the node's id
  std::uint32_t rank_ = 0;
  std::uint32_t node_ = 0;  // in the order of the members
  std::uint32_t epoch_ = 0;
  std::uint64_t token_ = 0;
  std::uint32_t size_ = 0;
  std::string incarnation_;  // of the epoch
  std::unique_ptr<HostilePeer> conductor_;
  // By node; null for this one and for others that are no daemons.
  std::vector<std::unique_ptr<HostilePeer>> lanes_;
};

}  // namespace tern::e2e
