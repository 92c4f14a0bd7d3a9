// The lane's side of its links: where frames come in, and the memory of those that went out.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"

namespace tern::daemon {
namespace {

// Payloads that are no blocks: failures, checksums, what announcements say.
constexpr std::size_t kSmallPayloadBytes = 4096;
// A link that no epoch uses is closed after so long: the next epoch usually begins sooner.
constexpr std::uint64_t kUnusedNs = 10'000'000'000;
// Links that peers have opened and this node has not asked for yet.
constexpr std::ptrdiff_t kMaxUnasked = 256;

}  // namespace

// ---- Memory of frames in flight -----------------------------------------------------------------

collective::Room Lane::room() const {
  collective::Room room;
  room.accumulators = accumulators_.free_count();
  room.receive_slabs = receive_slabs_.free_count();
  room.contributions = settings_.send_slabs - contributions_in_flight_;
  room.results = settings_.result_slabs - results_in_flight_;
  return room;
}

collective::Room Lane::room(const LaneJob& job, std::uint32_t nodes) const {
  const auto left = [&](std::uint32_t count, std::uint32_t free, std::uint32_t held,
                        std::uint32_t least) {
    const std::uint32_t share = load_.share(job, count, least, jobs_.size());
    return held < share ? std::min(free, share - held) : 0;
  };
  // A grant needs a slab for every other node.
  const std::uint32_t others = std::max(nodes, 2u) - 1;
  const collective::Room free = room();
  collective::Room room;
  room.accumulators = left(accumulators_.count(), free.accumulators, job.held.accumulators, 1);
  room.receive_slabs =
      left(receive_slabs_.count(), free.receive_slabs, job.held.receive_slabs, others);
  room.contributions = left(settings_.send_slabs, free.contributions, job.held.contributions, 1);
  room.results = left(settings_.result_slabs, free.results, job.held.results, 1);
  return room;
}

LaneJob& Lane::job(std::uint64_t key) {
  for (auto& job : jobs_) {
    if (job->key == key) return *job;
  }
  jobs_.push_back(std::make_unique<LaneJob>());
  jobs_.back()->key = key;
  return *jobs_.back();
}

std::uint64_t Lane::make_token(LaneJob& job, FrameToken::Leg leg, std::uint32_t receivers,
                               LaneGroup* group, collective::OpId op, SlabPool* pool,
                               std::uint32_t slab) {
  if (receivers == 0) return 0;
  TERN_CHECK(!free_tokens_.empty());  // room() counts the same things
  const std::uint32_t index = free_tokens_.back();
  free_tokens_.pop_back();
  tokens_[index] = FrameToken{leg, receivers, &job, group, op, pool, slab};
  const bool contribution = leg == FrameToken::Leg::contribution;
  ++(contribution ? contributions_in_flight_ : results_in_flight_);
  ++(contribution ? job.held.contributions : job.held.results);
  return index + 1;
}

void Lane::acked(std::uint64_t cookie) {
  if (cookie == 0) return;
  FrameToken& token = tokens_[cookie - 1];
  TERN_CHECK(token.unacked > 0);
  if (--token.unacked > 0) return;
  const bool contribution = token.leg == FrameToken::Leg::contribution;
  --(contribution ? contributions_in_flight_ : results_in_flight_);
  --(contribution ? token.job->held.contributions : token.job->held.results);
  if (token.slab != SlabPool::kNone) token.pool->give(token.slab);
  if (token.pool == &accumulators_) --token.job->held.accumulators;
  if (wire_events_[cookie - 1].begin_ns != 0) trace_arrival(wire_events_[cookie - 1]);
  LaneGroup* group = token.group;
  const collective::OpId op = token.op;
  token = FrameToken{};
  free_tokens_.push_back(static_cast<std::uint32_t>(cookie - 1));
  if (group != nullptr) group->frame_acked(op);
}

void Lane::send(LanePeer& peer, const wire::FrameHeader& header, std::span<const std::byte> prefix,
                std::span<const std::byte> body, std::uint64_t cookie) {
  if (peer.link->state() == net::LinkState::lost) return acked(cookie);
  count_block(prefix.size() + body.size());
  if (trace_.on()) trace_departure(peer, header, prefix.size() + body.size(), cookie);
  peer.link->send(header, prefix, body, cookie);
}

// ---- Trace --------------------------------------------------------------------------------------

void Lane::trace_departure(const LanePeer& peer, const wire::FrameHeader& header,
                           std::uint64_t bytes, std::uint64_t cookie) {
  if (cookie == 0) return;  // a grant
  TraceEvent& event = wire_events_[cookie - 1];
  const auto found = groups_by_token_.find(header.group);
  if (event.begin_ns != 0 || found == groups_by_token_.end()) return;
  event.kind = TraceKind::wire;
  event.begin_ns = clock_.now_ns();
  event.group = found->second->setup().number;
  event.tensor = header.tensor;
  event.sequence = header.op_seq;
  event.chunk = header.chunk;
  event.bytes = bytes;
  const std::uint32_t node = found->second->node_of(peer);
  event.node = static_cast<std::uint16_t>(node == collective::kNoSlot ? 0xffff : node);
}

void Lane::trace_arrival(TraceEvent& event) {
  event.end_ns = clock_.now_ns();
  if (trace_.on()) trace_.record(event);
  event = TraceEvent{};
}

// ---- Links --------------------------------------------------------------------------------------

LanePeer& Lane::peer(const wire::NodeId& id, std::uint64_t group, const net::Endpoint& endpoint) {
  const bool addressed = endpoint.port != 0;
  for (auto& peer : peers_) {
    if (peer->id != id || peer->group != group || peer->lost) continue;
    // Made for a connection that was meant for somebody else, a daemon that was here before: it
    // could not begin a link of its own.
    if (peer->stranger && addressed) {
      peer->lost = true;
      continue;
    }
    return *peer;
  }
  auto peer = std::make_unique<LanePeer>();
  peer->id = id;
  peer->group = group;
  peer->stranger = self_ < id && !addressed;
  peer->small.resize(kSmallPayloadBytes);
  peer->result.resize(settings_.block_bytes());
  net::Link::Identity identity;
  identity.self = self_;
  identity.peer = id;
  identity.lane = static_cast<std::uint16_t>(settings_.lane);
  identity.group = group;
  identity.endpoint = endpoint;
  identity.active = self_ < id && addressed;
  peer->link = std::make_unique<net::Link>(transport_, clock_, settings_.link, identity,
                                           static_cast<net::LinkSink&>(*this));
  peers_.push_back(std::move(peer));
  return *peers_.back();
}

void Lane::adopt(const command::AdoptConnection& command) {
  std::unique_ptr<net::Incoming> incoming(command.incoming);
  // A peer may connect before this lane knows that it will need it; one that is turned away comes
  // again.
  const auto unasked = std::count_if(peers_.begin(), peers_.end(),
                                     [](const auto& peer) { return peer->groups == 0; });
  const wire::HelloBody& hello = command.hello;
  if (unasked >= kMaxUnasked) {
    bump(counters_->links_turned_away, std::uint64_t{1});
    return report_peer(hello.node, "its link was turned away: too many wait for a group");
  }
  LanePeer* known = &peer(hello.node, hello.group, {});
  superseding_ = true;
  const bool taken = known->link->offer(incoming, hello);
  superseding_ = false;
  if (taken) return;
  // The old session is over on the other side; this one begins a new link.
  known = &peer(hello.node, hello.group, {});
  known->link->offer(incoming, hello);
}

LanePeer* Lane::peer_of(net::Link& link) {
  for (auto& peer : peers_) {
    if (peer->link.get() == &link) return peer.get();
  }
  return nullptr;
}

LaneGroup* Lane::group_of(const wire::FrameHeader& header, const LanePeer& peer,
                          std::uint32_t& node, bool& protocol_ok) {
  const auto found = groups_by_token_.find(header.group);
  if (found == groups_by_token_.end()) {
    bump(counters_->unknown_group_frames,
         std::uint64_t{1});  // late frames of an ended epoch, mostly
    return nullptr;
  }
  LaneGroup* group = found->second;
  node = header.source_node;
  if (header.epoch != group->setup().epoch || node >= group->setup().node_ids.size() ||
      group->setup().node_ids[node] != peer.id) {
    protocol_ok = false;
    return nullptr;
  }
  return group->ops().ended() ? nullptr : group;
}

net::PayloadPlace Lane::place_payload(net::Link& link, const wire::FrameHeader& header) {
  LanePeer* peer = peer_of(link);
  peer->receiving = Receiving{};
  std::uint32_t node = 0;
  bool protocol_ok = true;
  LaneGroup* group = group_of(header, *peer, node, protocol_ok);
  if (group == nullptr) return {};
  peer->receiving.group = group;
  if (header.payload_bytes > kSmallPayloadBytes &&
      header.kind != static_cast<std::uint8_t>(wire::FrameKind::announce) &&
      header.kind != static_cast<std::uint8_t>(wire::FrameKind::contribution) &&
      header.kind != static_cast<std::uint8_t>(wire::FrameKind::result)) {
    protocol_ok = false;
  }
  net::PayloadPlace place;
  if (protocol_ok) place = group->place_payload(*peer, node, header, protocol_ok);
  if (!protocol_ok) peer->receiving.refused = true;
  return place;
}

bool Lane::on_frame(net::Link& link, const wire::FrameHeader& header,
                    const net::PayloadPlace& place, bool payload_valid) {
  LanePeer* peer = peer_of(link);
  std::uint32_t node = 0;
  bool protocol_ok = !peer->receiving.refused;
  LaneGroup* group = nullptr;
  if (protocol_ok) group = group_of(header, *peer, node, protocol_ok);
  if (group != nullptr && group == peer->receiving.group) {
    count_block(header.payload_bytes);
    protocol_ok = group->on_frame(*peer, node, header, place, payload_valid);
  } else if (peer->receiving.group != nullptr) {
    peer->receiving.group->on_abandoned(*peer);  // the group ended while the payload came
  }
  peer->receiving = Receiving{};
  // On a link that groups have used, these are late frames of an ended epoch.
  if (group == nullptr && protocol_ok && !peer->served && !std::exchange(peer->reported, true)) {
    report_peer(peer->id, "it sends frames of a group that is not known here");
  }
  return protocol_ok;
}

void Lane::on_abandoned(net::Link& link, const wire::FrameHeader&, const net::PayloadPlace&) {
  LanePeer* peer = peer_of(link);
  if (peer->receiving.group != nullptr) peer->receiving.group->on_abandoned(*peer);
  peer->receiving = Receiving{};
}

void Lane::on_acked(net::Link&, std::uint64_t cookie) { acked(cookie); }

void Lane::on_breach(net::Link& link, const char* text) {
  bump(counters_->bad_frames, std::uint64_t{1});
  char line[sizeof(Sentence)];
  std::snprintf(line, sizeof(line), "its connection to lane %u was closed: %s", settings_.lane,
                text);
  report_peer(peer_of(link)->id, line);
}

void Lane::report_peer(const wire::NodeId& peer, const char* text) {
  report_for_log(event::PeerRefused{peer, Sentence(text)});
}

void Lane::on_lost(net::Link& link, Errc reason, const char* text) {
  LanePeer* peer = peer_of(link);
  peer->lost = true;
  if (peer->groups > 0) bump(counters_->links_lost, std::uint64_t{1});
  for (LaneGroup* group : groups_) {
    const std::uint32_t node = group->node_of(*peer);
    if (node == collective::kNoSlot) continue;
    // A new epoch may have begun on a link that the other side had given up before, which shows
    // only when it begins another, or just now closes because it was not used. As long as nothing
    // was said on it, nothing is lost with it.
    if ((superseding_ || reason == Errc::shutting_down) && group->is_untouched()) {
      group->renew_peer(node);
      continue;
    }
    report(event::LinkLost{group, node, reason, Sentence(text)});
  }
}

int Lane::settle_links(std::uint64_t now_ns) {
  int work = 0;
  for (auto& peer : peers_) {
    if (peer->groups > 0) {
      peer->unused_ns = 0;
      peer->served = true;
    } else if (peer->unused_ns == 0) {
      peer->unused_ns = now_ns;
    } else if (!peer->lost && now_ns - peer->unused_ns >= kUnusedNs) {
      peer->link->say_goodbye();
      ++work;
    }
  }
  std::erase_if(peers_, [](const auto& peer) { return peer->lost && peer->groups == 0; });
  return work;
}

// While jobs share the node; all links are free again in the round in which they no longer do.
void Lane::share_links(std::uint64_t now_ns) {
  if (!active_jobs_->several()) {
    if (!links_bound_) return;
    links_bound_ = false;
    for (const auto& peer : peers_) {
      if (peer->link) peer->link->bound_queue(0);
    }
    return;
  }
  if (!share_.due(now_ns)) return;
  links_bound_ = true;
  std::uint64_t acked_bytes = 0;
  for (const auto& peer : peers_) acked_bytes += peer->link ? peer->link->stats().acked_bytes : 0;
  share_.look(acked_bytes, now_ns);
  const auto for_links = [this](auto&& action) {
    for (const LaneGroup* group : groups_) {
      for (LanePeer* peer : group->peers()) {
        if (peer != nullptr && peer->link && !peer->lost) action(group->job(), *peer);
      }
    }
  };
  for (const auto& job : jobs_) {
    job->links = 0;
    job->under_way = 0;
  }
  for_links([](LaneJob& job, LanePeer& peer) {
    ++job.links;
    job.under_way += peer.link->unacked_bytes();
    peer.round_trip_ns = peer.link->delivery_rate().round_trip_ns;
  });
  // Those that fill the path at this moment: a job between two of its bursts leaves it to others.
  std::uint32_t filling = 0;
  for (const auto& job : jobs_) {
    job->backlog = LaneShare::backlog(job->backlog, job->under_way);
    if (!LaneShare::is_light(job->under_way)) filling += job->weight;
  }
  // A link that was opened while others filled the path has never seen it empty.
  const auto round_trip_to = [this](const wire::NodeId& node) {
    std::uint64_t shortest = 0;
    for (const auto& peer : peers_) {
      if (peer->id != node || peer->round_trip_ns == 0) continue;
      shortest = shortest == 0 ? peer->round_trip_ns : std::min(shortest, peer->round_trip_ns);
    }
    return shortest;
  };
  for_links([&](const LaneJob& job, LanePeer& peer) {
    if (LaneShare::is_light(job.backlog)) return peer.link->bound_queue(0);
    const bool fills = !LaneShare::is_light(job.under_way);
    const std::uint32_t all = filling + (fills ? 0 : job.weight);
    const LaneShare::Parts parts{load_.part(job.weight), load_.part(load_.least_weight),
                                 static_cast<double>(job.weight) / all};
    peer.link->bound_queue(share_.bound(parts, job.links, round_trip_to(peer.id)));
  });
}

// A line of the log for each peer and lane when it changes, not for each link.
void Lane::tell_carrier(LanePeer& peer, const net::Carriage& carriage) {
  const bool is_settled =
      peer.link->state() == net::LinkState::open && std::string_view(carriage.name) != "settling";
  if (!is_settled || *carriage.note == '\0') return;
  char text[sizeof(Sentence)];
  std::snprintf(text, sizeof(text), "lane %u reaches it over %s: %s", settings_.lane, carriage.name,
                carriage.note);
  if (peer.told_carrier == text) return;
  const auto last = std::find_if(told_carriers_.begin(), told_carriers_.end(),
                                 [&](const auto& one) { return one.first == peer.id; });
  const bool is_said = last != told_carriers_.end() && last->second == text;
  if (!is_said && !report_for_log(event::CarrierChanged{peer.id, Sentence(text)})) return;
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

void Lane::publish_peers() {
  peer_rows_.clear();
  for (const auto& peer : peers_) {
    PeerSnapshot& row = peer_rows_.emplace_back();
    row.id = peer->id;
    row.group = peer->group;
    row.state = peer->link->state();
    row.stats = peer->link->stats();
    row.unacked_frames = peer->link->unacked_frames();
    const net::Carriage carriage = peer->link->carriage();
    tell_carrier(*peer, carriage);
    row.failovers = carriage.failovers;
    std::strncpy(row.carrier, carriage.name, sizeof(row.carrier) - 1);
    std::strncpy(row.carrier_note, carriage.note, sizeof(row.carrier_note) - 1);
  }
  peer_table_.write(peer_rows_);
}

void Lane::publish_gauges() {
  std::uint64_t ops = 0;
  for (const LaneGroup* group : groups_) ops += group->in_flight();
  constexpr auto kRelaxed = std::memory_order_relaxed;
  counters_->ops_now.store(ops, kRelaxed);
  counters_->unacked_now.store(contributions_in_flight_ + results_in_flight_, kRelaxed);
  counters_->waiting_now.store(receive_slabs_.count() - receive_slabs_.free_count(), kRelaxed);
}

std::vector<Lane::PeerSnapshot> Lane::peers() const { return peer_table_.read(); }

}  // namespace tern::daemon
