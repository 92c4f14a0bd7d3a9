#include "net/link.h"

#include <algorithm>

#include "base/check.h"
#include "net/link_state.h"

namespace tern::net {

Link::Link(Transport& transport, const Clock& clock, Setup setup, LinkSink& sink)
    : state_(new State(*this, {transport, clock, sink}, std::move(setup))) {}

Link::State::State(Link& link_in, const Surroundings& surroundings, Setup setup)
    : link(link_in),
      events(link_in),
      transport(surroundings.transport),
      clock(surroundings.clock),
      settings(setup.settings),
      identity(std::move(setup.identity)),
      sink(surroundings.sink),
      give_up_ns(clock.now_ns() + settings.peer_timeout_ns + settings.resume_timeout_ns),
      arrivals(settings) {}

Link::~Link() { close(); }

void Link::say_goodbye() {
  if (state_->state == LinkState::lost) return;
  if (state_->state == LinkState::open) state_->send_control(wire::FrameKind::goodbye);
  state_->said_goodbye = true;
  state_->lose(Errc::shutting_down, "this daemon is shutting down");
}

void Link::give_up(Errc reason, const char* text) { state_->lose(reason, text); }

void Link::close() {
  state_->closed_here = true;
  state_->state = LinkState::lost;
  state_->announced.is_pending = false;
  state_->refusal.reset();
  state_->connection.reset();
  state_->release_all();
}

bool Link::offer(std::unique_ptr<Incoming>& incoming, const wire::HelloBody& hello) {
  return state_->offer(incoming, hello);
}
bool Link::has_session(std::uint64_t session) const noexcept { return state_->session == session; }
int Link::tick() { return state_->tick(state_->clock.now_ns()); }
int Link::tick(std::uint64_t now_ns) { return state_->tick(now_ns); }
std::uint64_t Link::next_deadline_ns() const noexcept { return state_->next_deadline_ns(); }
void Link::add_decode_ns(std::uint64_t ns) noexcept { state_->arrivals.add_decode_ns(ns); }
void Link::report_delivered(std::uint64_t bytes_per_s) noexcept {
  state_->arrivals.set_delivered(bytes_per_s);
}
LinkState Link::state() const noexcept { return state_->state; }
const Link::Identity& Link::identity() const noexcept { return state_->identity; }
std::uint64_t Link::peer_features() const noexcept { return state_->peer_features; }
bool Link::said_goodbye() const noexcept { return state_->said_goodbye; }
const LinkStats& Link::stats() const noexcept { return state_->stats; }
Carriage Link::carriage() const noexcept {
  return state_->connection ? state_->connection->carriage() : Carriage{};
}
void Link::acknowledge_soon() noexcept { state_->arrivals.note_awaited(); }
std::uint64_t Link::unacked_frames() const noexcept { return state_->unacked.size(); }
std::uint64_t Link::unacked_bytes() const noexcept { return state_->unacked.bytes(); }
std::uint64_t Link::held_bytes() const noexcept { return state_->unacked.held_bytes(); }
DeliveryRate Link::delivery_rate() const {
  return state_->state == LinkState::open ? state_->connection->delivery_rate() : DeliveryRate{};
}

void Link::bound_queue(const QueueBound& bound) {
  if (state_->state == LinkState::open) state_->connection->bound_queue(bound);
}

void Link::hold_reading(bool hold) {
  if (state_->state != LinkState::open) return;
  state_->connection->hold_reading(hold);
  // Who is not listened to is not silent, ends no frame and acknowledges none.
  if (!hold) return;
  state_->heard_ns = state_->piece.since_ns = state_->awaited.since_ns = state_->clock.now_ns();
}

void Link::on_open(Connection&) { state_->say_hello(wire::FrameKind::hello); }
bool Link::on_header(Connection&, const wire::FrameHeader& header, PayloadPlace& place) {
  return state_->on_header(header, place);
}
void Link::on_frame(Connection&, const wire::FrameHeader& header, const PayloadPlace& place,
                    bool payload_valid) {
  state_->on_frame(header, place, payload_valid);
}
void Link::on_closed(Connection&, Errc reason, const char* text) {
  state_->connection_closed(reason, text);
}

int Link::State::tick(std::uint64_t now) {
  int work = 0;
  if (refusal && refusal->is_over(now)) {
    refusal.reset();
    ++work;
  }
  if (state == LinkState::lost) return work;
  return work + (state == LinkState::open ? tick_open(now) : tick_closed(now));
}

int Link::State::tick_closed(std::uint64_t now) {
  if (now >= give_up_ns) {
    const std::string why = last_trouble.empty() ? "" : ": " + last_trouble;
    if (was_open) {
      lose(Errc::peer_lost, "the connection broke and could not be resumed in time" + why);
    } else if (identity.active) {
      lose(Errc::unreachable, "could not connect to " + to_text(identity.endpoint) + why);
    } else {
      lose(Errc::unreachable, "the peer did not connect in time" + why);
    }
    return 1;
  }
  if (!identity.active) return 0;
  if (connection) {
    if (now < attempt_ns + attempt_timeout_ns()) return 0;
    break_connection("no answer to the attempt to connect");
  }
  // The first attempt after a break is made at once; attempt_ns is zero then.
  if (attempt_ns != 0 && now < attempt_ns + settings.retry_ns) return 0;
  connect(now);
  return 1;
}

bool Link::State::is_frame_overdue(std::uint64_t now) noexcept {
  if (!announced.is_pending) {
    piece.link_seq = 0;
    return false;
  }
  const std::uint64_t bytes = connection->received_bytes();
  const std::uint64_t seq = announced.header.link_seq;
  if (piece.link_seq != seq || bytes - piece.received_bytes >= LinkSettings::kFramePieceBytes) {
    piece = {seq, bytes, now};
  }
  return now - piece.since_ns >= settings.frame_timeout_ns;
}

// Of the oldest frame. What the carrier has not taken the peer cannot acknowledge. Acknowledgements
// come behind all that the peer has queued, which on a slow network takes its time: as long as so
// much comes, it has more of that.
bool Link::State::is_ack_overdue(std::uint64_t now) noexcept {
  if (awaited.link_seq != unacked.first()) awaited = {};
  if (unacked.empty() || unacked.front().end_offset > taken()) return false;
  const std::uint64_t bytes = connection->received_bytes();
  if (awaited.link_seq == 0) awaited = {unacked.first(), now, 0, 0};
  if (awaited.since_ns == 0 || bytes - awaited.received_bytes >= LinkSettings::kFramePieceBytes) {
    awaited.received_bytes = bytes;
    awaited.since_ns = now;
  }
  const std::uint64_t pieces = 1 + unacked.front().payload_bytes / LinkSettings::kFramePieceBytes;
  return now - awaited.since_ns >= pieces * settings.frame_timeout_ns ||
         now - awaited.first_ns >= (pieces + kMostTimeouts) * settings.frame_timeout_ns;
}

int Link::State::tick_open(std::uint64_t now) {
  if (const std::uint64_t bytes = connection->received_bytes(); bytes != heard_bytes) {
    heard_bytes = bytes;
    heard_ns = now;
  } else if (now >= heard_ns + settings.peer_timeout_ns) {
    break_connection("nothing was heard from the peer for too long");
    return 1;
  }
  if (is_frame_overdue(now)) {
    constexpr const char* kWhy = "the peer has begun a frame and not ended it in time";
    sink.on_breach(link, kWhy);
    lose(Errc::protocol_error, kWhy);
    return 1;
  }
  if (is_ack_overdue(now)) {
    constexpr const char* kWhy = "the peer does not acknowledge what it is sent";
    sink.on_breach(link, kWhy);
    lose(Errc::protocol_error, kWhy);
    return 1;
  }
  if (arrivals.is_ack_due(now)) return send_ack(now) ? 1 : 0;
  if (now >= sent_ns + settings.heartbeat_ns && !arrivals.is_put_off(now)) {
    // Nobody acknowledges on a link at rest.
    clock_offset.widen(now);
    report_clock();
    if (send_control(wire::FrameKind::heartbeat)) return 1;
    arrivals.put_off(now);
  }
  return 0;
}

std::uint64_t Link::State::next_deadline_ns() const noexcept {
  std::uint64_t deadline = refusal ? refusal->deadline_ns() : ~std::uint64_t{0};
  switch (state) {
    case LinkState::lost:
      break;
    case LinkState::connecting:
    case LinkState::broken:
      deadline = std::min(deadline, give_up_ns);
      if (identity.active) {
        const std::uint64_t wait = connection ? attempt_timeout_ns() : settings.retry_ns;
        deadline = std::min(deadline, attempt_ns == 0 ? 0 : attempt_ns + wait);
      }
      break;
    case LinkState::open:
      deadline = std::min(deadline, heard_ns + settings.peer_timeout_ns);
      deadline =
          std::min(deadline, arrivals.next_send_ns(sent_ns, sent_ns + settings.heartbeat_ns));
      break;
  }
  return deadline;
}

// The memory that the connection borrows is free afterwards, and so is the place of a payload that
// was arriving.
void Link::State::drop_connection() {
  connection.reset();
  piece = {};
  awaited.since_ns = 0;
  control.reset();
  offset = 0;
  if (announced.is_pending) {
    announced.is_pending = false;
    sink.on_abandoned(link, announced.header, announced.place);
  }
}

void Link::State::break_connection(const char* why) {
  last_trouble = why;
  if (state == LinkState::open) {
    state = LinkState::broken;
    give_up_ns = clock.now_ns() + settings.resume_timeout_ns;
    attempt_ns = 0;
  }
  drop_connection();
}

void Link::State::break_for_breach(const char* why) {
  sink.on_breach(link, why);
  break_connection(why);
}

void Link::State::connection_closed(Errc reason, const char* text) {
  // What came were no frames, or not those that could come now.
  if (reason == Errc::corrupt_data || reason == Errc::protocol_error) sink.on_breach(link, text);
  // Whoever is not accepted now will not be the next moment. A link that was open goes on trying:
  // a stranger on the way must not be able to end it by one forged alert.
  if (reason == Errc::permission_denied && !was_open && identity.active) {
    lose(reason, "could not connect to " + to_text(identity.endpoint) + ": " + text);
  } else {
    break_connection(text);
  }
}

void Link::State::release_all() {
  while (!unacked.empty()) {
    const std::uint64_t cookie = unacked.front().cookie;
    unacked.pop();
    if (cookie != 0 && !closed_here) sink.on_acked(link, cookie);
  }
}

void Link::State::lose(Errc reason, std::string text) {
  if (state == LinkState::lost) return;
  state = LinkState::lost;
  drop_connection();
  release_all();
  last_trouble = std::move(text);
  if (!closed_here) sink.on_lost(link, reason, last_trouble.c_str());
}

}  // namespace tern::net
