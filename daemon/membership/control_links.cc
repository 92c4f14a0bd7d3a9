#include "daemon/membership/control_links.h"

#include <algorithm>
#include <utility>

#include "base/time_slice.h"
#include "daemon/control/foreign_json.h"

namespace tern::daemon {
namespace {

constexpr std::size_t kMaxMessageBytes = 1 << 20;
// Asked without end, a daemon would keep its answers for those that take none. Each link may have
// so much that is not acknowledged. Beyond it counts what all links of its source have, and what
// all of them have.
constexpr std::size_t kUnackedOfLink = 64 << 10;
constexpr std::size_t kUnackedOfSource = 16 << 20;
constexpr std::size_t kUnackedOfAll = 64 << 20;
// Whoever begins messages and does not end them has their room. What joiners say is smaller.
constexpr std::size_t kLargeMessageBytes = 16 << 10;
constexpr SharedPlaces::Bounds kLargeMessages{64, 8};
// Links that peers open: enough for any cluster of this version, not without limit. An address has
// several where daemons share a machine.
constexpr SharedPlaces::Bounds kAdopted{1024, 128};
// Peers close links that they opened after `unused_timeout`. One that nobody uses for so many times
// as long here is kept open for another purpose.
constexpr std::uint64_t kPatience = 6;
// Calendars are set while a daemon runs.
constexpr std::uint64_t kAboutNs = 600'000'000'000;
constexpr std::size_t kMaxSoftwareBytes = 32;
// Of a turn.
constexpr std::uint64_t kMessagesNs = 2'000'000;
constexpr std::uint64_t kLostNs = 1'000'000;
// A link with so much that waits to be read receives nothing more. All others do, and all send.
constexpr std::size_t kMaxWaitingBytes = 16 << 10;

// In memory: a message may be short.
std::size_t bytes_of_waiting(const std::string& text) noexcept {
  return sizeof(std::string) + text.size();
}

}  // namespace

ControlLinks::ControlLinks(const Base& base, Sink& sink)
    : transport_(base.transport),
      clock_(base.clock),
      settings_(base.settings),
      self_(base.self),
      sink_(sink),
      places_(kAdopted),
      large_(kLargeMessages) {}

ControlLinks::~ControlLinks() {
  for (auto& peer : peers_) peer->link->close();
}

ControlLinks::Peer& ControlLinks::add(const wire::NodeId& node, const net::Endpoint& endpoint,
                                      bool active) {
  auto peer = std::make_unique<Peer>();
  peer->ref = next_ref_++;
  peer->node = node;
  peer->endpoint = endpoint;
  net::Link::Identity identity;
  identity.self = self_;
  identity.peer = node;
  identity.lane = wire::kConductorLane;
  identity.endpoint = endpoint;
  identity.active = active;
  peer->link =
      std::make_unique<net::Link>(transport_, clock_, net::Link::Setup{settings_, identity},
                                  static_cast<net::LinkSink&>(*this));
  peers_.push_back(std::move(peer));
  return *peers_.back();
}

LinkRef ControlLinks::open(const net::Endpoint& endpoint) {
  for (auto& peer : peers_) {
    if (peer->lost || peer->endpoint != endpoint) continue;
    // It was begun for another user perhaps, whose names may be slow.
    if (peer->link->state() != net::LinkState::open) transport_.hasten(endpoint);
    return peer->ref;
  }
  return add({}, endpoint, true).ref;
}

// Which that node has opened.
bool ControlLinks::is_of(const Peer& peer, const wire::NodeId& node) {
  return !peer.lost && peer.node == node && peer.endpoint.host.empty();
}

bool ControlLinks::adopt(std::unique_ptr<net::Incoming> incoming, const wire::HelloBody& hello) {
  // Who goes on with a session proves itself by it. A new one may take the name of any node, and so
  // may have a link that has nothing to do with the node's own.
  const bool is_known =
      hello.session != 0 && std::any_of(peers_.begin(), peers_.end(), [&](auto& peer) {
        return is_of(*peer, hello.node) && peer->link->has_session(hello.session);
      });
  for (auto& peer : peers_) {
    if (!is_of(*peer, hello.node)) continue;
    if (is_known ? !peer->link->has_session(hello.session)
                 : hello.resume == 0 && peer->source != incoming->source) {
      continue;
    }
    if (peer->link->offer(incoming, hello)) return true;
  }
  std::string source = incoming->source;
  auto place = places_.take(source);
  if (!place) return false;
  Peer& peer = add(hello.node, {}, false);
  peer.source = std::move(source);
  peer.place = std::move(place);
  return peer.link->offer(incoming, hello);
}

bool ControlLinks::is_open(LinkRef link) const {
  return std::any_of(peers_.begin(), peers_.end(), [link](const auto& peer) {
    return peer->ref == link && !peer->lost && peer->link->state() == net::LinkState::open;
  });
}

void ControlLinks::close_unused(const std::set<LinkRef>& in_use) {
  const std::uint64_t now = clock_.now_ns();
  for (auto& peer : peers_) {
    if (peer->lost || in_use.contains(peer->ref)) {
      peer->unused_ns = 0;
      continue;
    }
    if (peer->unused_ns == 0) peer->unused_ns = now;
    const bool opened_here = !peer->place;
    const std::uint64_t limit_ns = settings_.unused_timeout_ns * (opened_here ? 1 : kPatience);
    // While it is not open yet nobody waits for its answer any more.
    const bool opened = peer->link->state() != net::LinkState::connecting;
    if ((opened_here && !opened) || now - peer->unused_ns >= limit_ns) peer->link->say_goodbye();
  }
}

void ControlLinks::send_text(LinkRef to, const std::string& text) {
  Peer* const peer = find(to);
  if (peer != nullptr && !peer->lost) send_text(*peer, text);
}

void ControlLinks::send_text(Peer& peer, const std::string& text) {
  make_room(peer, text.size());
  if (peer.lost) return;
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(wire::FrameKind::control);
  peer.link->send_copy(header, std::as_bytes(std::span(text.data(), text.size())));
}

void ControlLinks::make_room(Peer& peer, std::size_t bytes) {
  struct Holding {
    std::size_t bytes = 0;
    Peer* most = nullptr;  // the link that has most of it
  };
  if (peer.link->unacked_bytes() + bytes <= kUnackedOfLink) return;
  while (!peer.lost) {
    std::map<std::string, Holding> sources;
    std::size_t all = 0;
    for (auto& one : peers_) {
      if (one->lost) continue;
      Holding& holding = sources[source_of(*one)];
      const std::size_t unacked = one->link->unacked_bytes();
      if (holding.most == nullptr || unacked > holding.most->link->unacked_bytes()) {
        holding.most = one.get();
      }
      holding.bytes += unacked;
      all += unacked;
    }
    const Holding& own = sources[source_of(peer)];
    const auto largest = std::max_element(
        sources.begin(), sources.end(),
        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    Peer* gives_way = nullptr;
    if (own.bytes + bytes > kUnackedOfSource) {
      gives_way = own.most;
    } else if (all + bytes > kUnackedOfAll) {
      gives_way = largest->second.most;
    }
    if (gives_way == nullptr) return;
    break_off(*gives_way, "the peer does not acknowledge what it is told");
  }
}

void ControlLinks::break_off(Peer& peer, std::string why) {
  peer.link->close();
  peer.lost = true;
  peer.reason = Errc::protocol_error;
  peer.why = std::move(why);
  sink_.on_control_breach(name_of(peer), peer.why);
}

void ControlLinks::tell_about(Peer& peer) {
  const std::uint64_t now = clock_.now_ns();
  if (!about_ || now < peer.about_due_ns || peer.link->state() != net::LinkState::open) return;
  peer.about_due_ns = now + kAboutNs;
  send_text(peer, json_text(about_()));
}

void ControlLinks::on_about(LinkRef from, const nlohmann::json& message) {
  for (auto& peer : peers_) {
    if (peer->ref != from) continue;
    ++peer->abouts;
    peer->software = text_of(message, "software").substr(0, kMaxSoftwareBytes);
    peer->calendar_ns = number_of(message, "calendar_ns");
  }
}

int ControlLinks::do_work(Messages messages) {
  for (auto& peer : peers_) {
    if (!peer->lost) peer->link->hold_reading(peer->received_bytes >= kMaxWaitingBytes);
  }
  int work = transport_.poll();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i]->lost) continue;
    work += peers_[i]->link->tick();
    tell_about(*peers_[i]);
  }
  if (messages == Messages::read) work += pass_on();
  return work + tell_lost();
}

// Outside the links' callbacks, where the sink may open and send as it likes.
int ControlLinks::pass_on() {
  const TimeSlice slice(clock_, kMessagesNs);
  int passed = 0;
  while (!waiting_.empty()) {
    Peer& peer = *find(waiting_.front());
    waiting_.pop_front();
    const std::string text = std::move(peer.received.front());
    peer.received.pop_front();
    peer.received_bytes -= bytes_of_waiting(text);
    if (!peer.received.empty()) waiting_.push_back(peer.ref);
    pass_on(peer, text);
    ++passed;
    if (slice.is_over()) break;
  }
  return passed;
}

void ControlLinks::pass_on(Peer& peer, const std::string& text) {
  const char* const objection = objection_to_json(text);
  const auto message = objection != nullptr ? nlohmann::json(nlohmann::json::value_t::discarded)
                                            : nlohmann::json::parse(text, nullptr, false);
  if (message.is_object()) return sink_.on_control_message(peer.ref, message);
  // What it said before has been heard, and what it says after that is nobody's.
  std::erase(waiting_, peer.ref);
  peer.received.clear();
  peer.received_bytes = 0;
  if (!peer.lost) {
    break_off(peer, std::string("its control message ") +
                        (objection != nullptr ? objection : "is no JSON object"));
  }
}

// What a link has brought comes before its end.
int ControlLinks::tell_lost() {
  const TimeSlice slice(clock_, kLostNs);
  int told = 0;
  for (std::size_t i = 0; i < peers_.size();) {
    if (!peers_[i]->lost || !peers_[i]->received.empty()) {
      ++i;
      continue;
    }
    const auto gone = std::move(peers_[i]);
    peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i));
    const bool worked = gone->link->stats().frames_received > gone->abouts;
    sink_.on_control_link_lost(gone->ref, gone->reason, worked, gone->why);
    ++told;
    if (slice.is_over()) break;
  }
  return told;
}

std::uint64_t ControlLinks::next_deadline_ns() const {
  if (!waiting_.empty()) return clock_.now_ns();
  std::uint64_t deadline = ~std::uint64_t{0};
  for (const auto& peer : peers_) {
    if (peer->lost) return clock_.now_ns();
    deadline = std::min(deadline, peer->link->next_deadline_ns());
  }
  return deadline;
}

void ControlLinks::say_goodbye() {
  for (auto& peer : peers_) {
    if (!peer->lost) peer->link->say_goodbye();
  }
}

std::vector<ControlLinks::Row> ControlLinks::rows() const {
  std::vector<Row> rows;
  for (const auto& peer : peers_) {
    const wire::NodeId node = peer->link->identity().peer;
    rows.push_back({node_text(node),
                    peer->endpoint.host.empty() ? "" : net::to_text(peer->endpoint),
                    peer->link->state(), peer->link->stats(), peer->link->unacked_frames(),
                    peer->software, peer->calendar_ns, peer->link->carriage()});
  }
  return rows;
}

ControlLinks::Peer* ControlLinks::find(LinkRef link) const {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [link](const auto& peer) { return peer->ref == link; });
  return found == peers_.end() ? nullptr : found->get();
}

ControlLinks::Peer* ControlLinks::peer_of(const net::Link& link) {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [&link](const auto& peer) { return peer->link.get() == &link; });
  return found == peers_.end() ? nullptr : found->get();
}

net::PayloadPlace ControlLinks::place_payload(net::Link& link, const wire::FrameHeader& header) {
  if (header.kind != static_cast<std::uint8_t>(wire::FrameKind::control) ||
      header.payload_bytes > kMaxMessageBytes) {
    return {};
  }
  Peer* peer = peer_of(link);
  if (header.payload_bytes > kLargeMessageBytes) {
    peer->large = large_.take(source_of(*peer));
    if (!peer->large) return {};
  }
  // Pages that nothing comes to are not there.
  peer->buffer = std::make_unique_for_overwrite<std::byte[]>(header.payload_bytes);
  return {{}, {peer->buffer.get(), header.payload_bytes}};
}

bool ControlLinks::on_frame(net::Link& link, const wire::FrameHeader& header,
                            const net::PayloadPlace& place, bool payload_valid) {
  Peer* peer = peer_of(link);
  const auto buffer = std::exchange(peer->buffer, nullptr);
  peer->large.reset();
  if (!payload_valid || header.kind != static_cast<std::uint8_t>(wire::FrameKind::control)) {
    return false;
  }
  if (place.body.size() != header.payload_bytes) {
    peer->breach =
        "there was no room for its message of " + std::to_string(header.payload_bytes) + " bytes";
    return false;
  }
  if (peer->received.empty()) waiting_.push_back(peer->ref);
  peer->received.emplace_back(static_cast<const char*>(static_cast<const void*>(place.body.data())),
                              place.body.size());
  peer->received_bytes += bytes_of_waiting(peer->received.back());
  return true;
}

void ControlLinks::on_abandoned(net::Link& link, const wire::FrameHeader&,
                                const net::PayloadPlace&) {
  Peer* peer = peer_of(link);
  peer->buffer.reset();
  peer->large.reset();
}

void ControlLinks::on_breach(net::Link& link, const char* text) {
  const Peer& peer = *peer_of(link);
  sink_.on_control_breach(name_of(peer), peer.breach.empty() ? text : peer.breach);
}

std::string ControlLinks::name_of(const Peer& peer) {
  return peer.endpoint.host.empty() ? node_text(peer.link->identity().peer)
                                    : net::to_text(peer.endpoint);
}

std::string ControlLinks::name_of(LinkRef link) const {
  for (const auto& peer : peers_) {
    if (peer->ref == link) return name_of(*peer);
  }
  return "";
}

std::string ControlLinks::source_of(LinkRef link) const {
  for (const auto& peer : peers_) {
    if (peer->ref == link) return source_of(*peer);
  }
  return "";
}

std::string ControlLinks::source_of(const Peer& peer) {
  return peer.place ? peer.source : name_of(peer);
}

void ControlLinks::on_lost(net::Link& link, Errc reason, const char* text) {
  Peer* peer = peer_of(link);
  peer->lost = true;
  peer->reason = reason;
  peer->why = text;
}

}  // namespace tern::daemon
