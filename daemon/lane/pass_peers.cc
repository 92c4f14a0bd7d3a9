#include "daemon/lane/pass_peers.h"

#include <cstdio>

namespace tern::daemon {
namespace {

bool has_said_hello(const LanePeer& peer) {
  return peer.link->state() != net::LinkState::connecting;
}

}  // namespace

PassPeers::PassPeers(const GroupCore& core) : core_(core), nodes_(core.nodes()) {
  departures_.reserve(core.setup().shape.local_ranks());
}

bool PassPeers::knows(std::uint32_t node, std::uint64_t feature) const {
  const std::uint64_t features = core_.peers()[node]->link->peer_features();
  return ((features | nodes_[node].features) & feature) != 0;
}

const char* PassPeers::objection(char (&text)[96]) const {
  for (std::uint32_t node = 0; node < core_.nodes(); ++node) {
    const LanePeer* const peer = core_.peers()[node];
    if (peer == nullptr || !has_said_hello(*peer) || knows(node, wire::kFeatureSend)) continue;
    std::snprintf(text, sizeof(text),
                  "the ternd of node %u does not know send and recv: install this version there",
                  node);
    return text;
  }
  return nullptr;
}

const char* PassPeers::objection_to_loss(std::uint32_t node, char (&text)[96]) const {
  const LanePeer* const peer = core_.peers()[node];
  if (peer == nullptr || knows(node, wire::kFeatureLossySends)) return nullptr;
  if (!has_said_hello(*peer) && nodes_[node].features == 0) return nullptr;
  std::snprintf(text, sizeof(text),
                "the ternd of node %u takes no recipes of sends: install this version there", node);
  return text;
}

void PassPeers::add_departure(std::uint32_t rank) {
  departures_.push_back(rank);
  tell_all();
}

void PassPeers::before_renewal(std::uint32_t node) {
  nodes_[node].features |= core_.peers()[node]->link->peer_features();
  nodes_[node].told = 0;
  untold_ = !departures_.empty();
}

void PassPeers::tell_all() {
  untold_ = false;
  for (std::uint32_t node = 0; node < core_.nodes(); ++node) {
    const LanePeer* const peer = core_.peers()[node];
    if (peer == nullptr || peer->is_lost()) continue;
    if (has_said_hello(*peer)) {
      tell(node);
    } else {
      untold_ = true;
    }
  }
}

void PassPeers::tell(std::uint32_t node) {
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(wire::FrameKind::rank_left);
  header.group = core_.setup().token;
  header.epoch = core_.setup().epoch;
  header.source_node = static_cast<std::uint16_t>(core_.self());
  for (std::size_t& told = nodes_[node].told; told < departures_.size(); ++told) {
    header.op_seq = departures_[told];
    if (knows(node, wire::kFeatureSend)) core_.peers()[node]->link->send_copy(header, {});
  }
}

}  // namespace tern::daemon
