#include "daemon/lane/group_core.h"

#include <algorithm>

#include "base/check.h"
#include "daemon/lane/fail_body.h"

namespace tern::daemon {

using collective::OpId;

GroupCore::GroupCore(GroupSetup setup, MemoryOwner& owner)
    : setup_(std::move(setup)),
      owner_(owner),
      ops_(setup_.shape),
      lane_ops_(ops_.table().slots(), static_cast<std::uint32_t>(setup_.local_clients.size()),
                setup_.shape.max_ops_in_flight),
      peers_(ops_.nodes(), nullptr),
      renewed_features_(ops_.nodes(), 0) {}

void GroupCore::attach(LaneResources& resources, PeerSource& peers, LaneJob& job) {
  resources_ = &resources;
  source_ = &peers;
  job_ = &job;
  job_->weight = setup_.weight;
  job_->account = setup_.account;
  ++job_->groups;
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    if (node == self()) continue;
    use_peer(node);
  }
}

void GroupCore::use_peer(std::uint32_t node) {
  LanePeer& peer = source_->peer(setup_.node_ids[node], setup_.link, setup_.endpoints[node]);
  peers_[node] = &peer;
  ++peer.groups;
  peer.account = setup_.account;
  // All ops that there may be, with their values.
  const collective::GroupShape& shape = setup_.shape;
  const std::uint64_t values = std::uint64_t{2} * shape.max_ops_in_flight * shape.eager_bytes;
  peer.may_hold_bytes = std::max(peer.may_hold_bytes, LanePeer::kMayHold + values);
}

void GroupCore::detach() {
  --job_->groups;
  for (LanePeer* peer : peers_) {
    if (peer != nullptr) --peer->groups;
  }
}

// ---- Peers --------------------------------------------------------------------------------------

std::uint32_t GroupCore::node_of(const LanePeer& peer) const noexcept {
  const auto found = std::find(peers_.begin(), peers_.end(), &peer);
  return found == peers_.end() ? collective::kNoSlot
                               : static_cast<std::uint32_t>(found - peers_.begin());
}

bool GroupCore::all_links_open() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const LanePeer* peer) {
    return peer == nullptr || (peer->link && peer->link->state() == net::LinkState::open);
  });
}

bool GroupCore::all_have(std::uint64_t feature) const {
  for (std::size_t node = 0; node < peers_.size(); ++node) {
    const LanePeer* const peer = peers_[node];
    if (peer == nullptr || peer->is_lost()) continue;
    if (((peer->link->peer_features() | renewed_features_[node]) & feature) == 0) return false;
  }
  return true;
}

void GroupCore::renew_peer(std::uint32_t node) {
  if (peers_[node]->link) renewed_features_[node] |= peers_[node]->link->peer_features();
  --peers_[node]->groups;
  use_peer(node);
}

// ---- Frames -------------------------------------------------------------------------------------

wire::FrameHeader GroupCore::header(wire::FrameKind kind, OpId op) const noexcept {
  return header(kind, ops_.op(op).key);
}

wire::FrameHeader GroupCore::header(wire::FrameKind kind,
                                    const collective::OpKey& key) const noexcept {
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.group = setup_.token;
  header.epoch = setup_.epoch;
  header.tensor = key.tensor;
  header.op_seq = key.sequence;
  header.source_node = static_cast<std::uint16_t>(self());
  return header;
}

wire::FrameHeader GroupCore::block_header(wire::Leg leg, OpId op,
                                          std::uint32_t number) const noexcept {
  const bool result = leg == wire::Leg::broadcast;
  wire::FrameHeader made =
      header(result ? wire::FrameKind::result : wire::FrameKind::contribution, op);
  made.chunk = number;
  made.leg = static_cast<std::uint8_t>(leg);
  return made;
}

void GroupCore::tell_all(const wire::FrameHeader& header, std::span<const std::byte> payload,
                         std::span<const std::byte> values) {
  for (LanePeer* peer : peers_) {
    if (peer == nullptr || peer->is_lost()) continue;
    peer->link->send_copy(header, payload, values);
  }
}

void GroupCore::tell_failure(std::uint32_t node, const collective::OpKey& key,
                             const collective::Failure& failure) {
  if (ops_.ended() || peers_[node]->is_lost()) return;
  peers_[node]->link->send_copy(header(wire::FrameKind::op_fail, key), FailBody(failure).payload());
}

void GroupCore::send(std::uint32_t node, const BlockFrame& frame) {
  LanePeer& peer = *peers_[node];
  if (peer.is_lost()) return resources_->frame_acked(frame.cookie);
  const std::size_t bytes = frame.prefix.size() + frame.body.size();
  resources_->count_block(bytes);
  if (frame.cookie != 0 && resources_->wire_trace.on()) {
    TraceEvent event;
    event.begin_ns = now_ns();
    event.group = setup_.number;
    event.tensor = frame.header.tensor;
    event.sequence = frame.header.op_seq;
    event.chunk = frame.header.chunk;
    event.bytes = bytes;
    event.node = static_cast<std::uint16_t>(node);
    resources_->wire_trace.departs(frame.cookie, event);
  }
  peer.link->send(frame.header, frame.prefix, frame.body, frame.cookie);
}

void GroupCore::send_to_all(const BlockFrame& frame) {
  // Every node begins with the one after it, so that not all send to one at a time.
  for (std::uint32_t step = 1; step < nodes(); ++step) send((self() + step) % nodes(), frame);
}

bool GroupCore::unpin(OpId op) noexcept {
  TERN_CHECK(lane_ops_[op].pins > 0);
  return lane_ops_.unpin(op) && ops_.table().in_use(op) && ops_.op(op).is_completing();
}

void GroupCore::tell_submitted(const collective::Action& action) {
  const wire::SubmittedBody body{op(action.op).submitted};
  const auto head = header(wire::FrameKind::submitted, action.op);
  for (LanePeer* peer : peers_) {
    if (peer == nullptr || peer->is_lost() ||
        (peer->link->peer_features() & wire::kFeatureSubmitted) == 0) {
      continue;
    }
    peer->link->send_copy(head, std::as_bytes(std::span(&body, 1)));
  }
  ops_.done(action);
}

}  // namespace tern::daemon
