#include "daemon/lane/lane_links.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>

#include "base/bump.h"
#include "base/check.h"

namespace tern::daemon {

using Phase = LanePeer::Phase;

namespace {

// Payloads that are no blocks: failures, checksums, what announcements say.
constexpr std::size_t kSmallPayloadBytes = 4096;
// Links that peers have opened and this node has not asked for yet: each has buffers of a quarter
// of a MiB.
constexpr SharedPlaces::Bounds kUnasked{256, 32};
constexpr const char* kTooMuchHeld =
    "more waits for the peer's acknowledgement than this link may hold";

}  // namespace

LaneLinks::LaneLinks(LaneResources& resources, net::Transport& transport, wire::NodeId self,
                     FrameSink& sink)
    : resources_(resources), transport_(transport), self_(self), sink_(sink), unasked_(kUnasked) {}

LaneLinks::~LaneLinks() {
  for (auto& peer : peers_) {
    if (peer->link) peer->link->close();
  }
}

LanePeer& LaneLinks::peer(const wire::NodeId& id, std::uint64_t group,
                          const net::Endpoint& endpoint) {
  const bool addressed = endpoint.port != 0;
  for (auto& peer : peers_) {
    if (peer->id != id || peer->group != group || !peer->can_serve()) continue;
    // Made for a connection that was meant for somebody else, a daemon that was here before: it
    // could not begin a link of its own.
    if (peer->phase == Phase::stranger && addressed) {
      peer->phase = Phase::lost;
      continue;
    }
    return *peer;
  }
  auto peer = std::make_unique<LanePeer>(resources_.settings.block_bytes());
  peer->id = id;
  peer->group = group;
  if (self_ < id && !addressed) peer->phase = Phase::stranger;
  peer->small.resize(kSmallPayloadBytes);
  net::Link::Identity identity;
  identity.self = self_;
  identity.peer = id;
  identity.lane = static_cast<std::uint16_t>(resources_.settings.lane);
  identity.group = group;
  identity.endpoint = endpoint;
  identity.active = self_ < id && addressed;
  peer->link = std::make_unique<net::Link>(transport_, resources_.clock,
                                           net::Link::Setup{resources_.settings.link, identity},
                                           static_cast<net::LinkSink&>(*this));
  peers_.push_back(std::move(peer));
  return *peers_.back();
}

void LaneLinks::adopt(const command::AdoptConnection& command) {
  std::unique_ptr<net::Incoming> incoming(command.incoming);
  const wire::HelloBody& hello = command.hello;
  // A peer may connect before this lane knows that it will need it; one that is turned away comes
  // again.
  for (const auto& peer : peers_) {
    if (peer->groups > 0) peer->place.reset();
  }
  const bool is_asked = std::any_of(peers_.begin(), peers_.end(), [&hello](const auto& peer) {
    return peer->id == hello.node && peer->group == hello.group && peer->groups > 0;
  });
  auto place = is_asked ? std::nullopt : unasked_.take(incoming->source);
  if (!is_asked && !place) {
    bump(resources_.counters->links_turned_away, std::uint64_t{1});
    return report_peer(hello.node, "its link was turned away: too many wait for a group");
  }
  LanePeer* known = &peer(hello.node, hello.group, {});
  superseding_ = true;
  const bool taken = known->link->offer(incoming, hello);
  superseding_ = false;
  if (!taken) {
    // The old session is over on the other side; this one begins a new link.
    known = &peer(hello.node, hello.group, {});
    known->link->offer(incoming, hello);
  }
  if (known->groups == 0) known->place = std::move(place);
}

int LaneLinks::tick(std::uint64_t now_ns) {
  int work = 0;
  // By index: a link that is lost may be made anew, at the end.
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    LanePeer& peer = *peers_[i];
    if (peer.link && peer.can_serve()) work += peer.link->tick(now_ns);
  }
  return work;
}

void LaneLinks::say_goodbye() {
  closing_ = true;
  for (auto& peer : peers_) {
    if (peer->link && peer->can_serve()) peer->link->say_goodbye();
  }
}

// Frames are made by what local ranks and other nodes do, at their pace, and go when the peer
// acknowledges them.
int LaneLinks::bound_memory() {
  std::uint64_t all = 0;
  int given_up = 0;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    LanePeer& peer = *peers_[i];
    if (!peer.can_serve()) continue;
    const std::uint64_t held = peer.link->held_bytes();
    if (held > peer.may_hold_bytes) {
      peer.link->give_up(Errc::peer_lost, kTooMuchHeld);
      ++given_up;
    } else {
      all += held;
    }
  }
  if (all > kMostHeldBytes) {
    who_holds_most().link->give_up(Errc::peer_lost, kTooMuchHeld);
    ++given_up;
  }
  return given_up;
}

// Of the user whose links hold most: nobody else's give way to many links of one.
LanePeer& LaneLinks::who_holds_most() {
  std::map<std::uint32_t, std::uint64_t> held;  // by account
  for (const auto& peer : peers_) {
    if (peer->can_serve()) held[peer->account] += peer->link->held_bytes();
  }
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const std::uint32_t account = std::max_element(held.begin(), held.end(), less)->first;
  LanePeer* most = nullptr;
  for (const auto& peer : peers_) {
    if (!peer->can_serve() || peer->account != account) continue;
    if (most == nullptr || peer->link->held_bytes() > most->link->held_bytes()) most = peer.get();
  }
  return *most;
}

int LaneLinks::settle(std::uint64_t now_ns) {
  const std::uint64_t limit_ns = resources_.settings.link.unused_timeout_ns;
  int work = bound_memory();
  for (auto& peer : peers_) {
    if (peer->groups > 0) {
      peer->unused_ns = 0;
      if (peer->can_serve()) peer->phase = Phase::used;
    } else if (peer->unused_ns == 0) {
      peer->unused_ns = now_ns;
    } else if (peer->can_serve() && now_ns - peer->unused_ns >= limit_ns) {
      peer->link->say_goodbye();
      ++work;
    }
  }
  std::erase_if(peers_, [](const auto& peer) { return !peer->can_serve() && peer->groups == 0; });
  return work;
}

std::uint64_t LaneLinks::next_deadline_ns(std::uint64_t otherwise) const {
  std::uint64_t deadline = otherwise;
  for (const auto& peer : peers_) {
    if (peer->link && peer->can_serve()) {
      deadline = std::min(deadline, peer->link->next_deadline_ns());
    }
  }
  return deadline;
}

// ---- Frames -------------------------------------------------------------------------------------

LanePeer& LaneLinks::peer_of(net::Link& link) {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const auto& peer) { return peer->link.get() == &link; });
  TERN_CHECK(found != peers_.end());
  return **found;
}

net::PayloadPlace LaneLinks::place_payload(net::Link& link, const wire::FrameHeader& header) {
  LanePeer& peer = peer_of(link);
  peer.receiving = Receiving{};
  net::PayloadPlace place;
  if (sink_.place_frame(peer, header, place)) return place;
  peer.receiving.refused = true;
  return {};
}

bool LaneLinks::on_frame(net::Link& link, const wire::FrameHeader& header,
                         const net::PayloadPlace& place, bool payload_valid) {
  LanePeer& peer = peer_of(link);
  bool known = false;
  bool protocol_ok = !peer.receiving.refused;
  if (protocol_ok) {
    protocol_ok = sink_.take_frame(peer, header, {place, payload_valid}, known);
  } else {
    sink_.abandon_frame(peer);
  }
  peer.receiving = Receiving{};
  // On a link that groups have used, these are late frames of an ended epoch.
  const bool was_unused = peer.phase == Phase::unused || peer.phase == Phase::stranger;
  if (!known && protocol_ok && was_unused && !std::exchange(peer.is_reported, true)) {
    report_peer(peer.id, "it sends frames of a group that is not known here");
  }
  return protocol_ok;
}

void LaneLinks::on_abandoned(net::Link& link, const wire::FrameHeader&, const net::PayloadPlace&) {
  LanePeer& peer = peer_of(link);
  sink_.abandon_frame(peer);
  peer.receiving = Receiving{};
}

void LaneLinks::on_acked(net::Link&, std::uint64_t cookie) { resources_.frame_acked(cookie); }

void LaneLinks::on_breach(net::Link& link, const char* text) {
  bump(resources_.counters->bad_frames, std::uint64_t{1});
  char line[sizeof(Sentence)];
  std::snprintf(line, sizeof(line), "its connection to lane %u was closed: %s",
                resources_.settings.lane, text);
  report_peer(peer_of(link).id, line);
}

void LaneLinks::on_lost(net::Link& link, Errc reason, const char* text) {
  LanePeer& peer = peer_of(link);
  peer.phase = Phase::lost;
  if (peer.groups > 0) bump(resources_.counters->links_lost, std::uint64_t{1});
  // A daemon that ends makes no link anew.
  const bool superseded = !closing_ && (superseding_ || link.said_goodbye());
  sink_.on_link_lost(peer, reason, text, superseded);
}

// ---- What is told of peers ----------------------------------------------------------------------

void LaneLinks::report_peer(const wire::NodeId& peer, const char* text) {
  resources_.reports.report_for_log(event::PeerRefused{peer, Sentence(text)});
}

// A line of the log for each peer and lane when it changes, not for each link.
void LaneLinks::tell_carrier(LanePeer& peer, const net::Carriage& carriage) {
  const bool is_settled =
      peer.link->state() == net::LinkState::open && std::string_view(carriage.name) != "settling";
  if (!is_settled || *carriage.note == '\0') return;
  char text[sizeof(Sentence)];
  std::snprintf(text, sizeof(text), "lane %u reaches it over %s: %s", resources_.settings.lane,
                carriage.name, carriage.note);
  if (peer.told_carrier == text) return;
  const auto last = std::find_if(told_carriers_.begin(), told_carriers_.end(),
                                 [&](const auto& one) { return one.first == peer.id; });
  const bool is_said = last != told_carriers_.end() && last->second == text;
  if (!is_said &&
      !resources_.reports.report_for_log(event::CarrierChanged{peer.id, Sentence(text)})) {
    return;
  }
  peer.told_carrier = text;
  if (last != told_carriers_.end()) {
    last->second = text;
    return;
  }
  // Of nodes that are gone nothing need be known.
  std::erase_if(told_carriers_, [this](const auto& one) {
    return std::none_of(peers_.begin(), peers_.end(),
                        [&](const auto& other) { return other->id == one.first; });
  });
  told_carriers_.emplace_back(peer.id, text);
}

void LaneLinks::publish() {
  peer_rows_.clear();
  const bool all = peers_.size() <= kSnapshots;
  for (const bool first : {true, false}) {
    for (const auto& peer : peers_) {
      const bool runs = peer->link->state() == net::LinkState::open;
      if (all ? first : first != runs) publish(*peer);
    }
  }
  peer_table_.write(peer_rows_);
}

void LaneLinks::publish(LanePeer& peer) {
  PeerSnapshot& row = peer_rows_.emplace_back();
  row.id = peer.id;
  row.group = peer.group;
  row.state = peer.link->state();
  row.stats = peer.link->stats();
  row.unacked_frames = peer.link->unacked_frames();
  const net::Carriage carriage = peer.link->carriage();
  tell_carrier(peer, carriage);
  row.failovers = carriage.failovers;
  std::strncpy(row.carrier, carriage.name, sizeof(row.carrier) - 1);
  std::strncpy(row.carrier_note, carriage.note, sizeof(row.carrier_note) - 1);
}

}  // namespace tern::daemon
