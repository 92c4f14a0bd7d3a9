#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "net/link_state.h"

namespace tern::net {
namespace {

constexpr std::uint64_t kRefusalLinger = 1'000'000'000;

std::uint64_t random_session() {
  std::uint64_t session = 0;
  while (session == 0) {
    TERN_CHECK(::getrandom(&session, sizeof session, 0) == sizeof session);
  }
  return session;
}

}  // namespace

Refusal::Refusal(Transport& transport, std::unique_ptr<Incoming> incoming, const Reason& reason,
                 std::uint64_t deadline_ns)
    : frame_(wire::make_refuse(reason.code, reason.text)), deadline_ns_(deadline_ns) {
  connection_ = transport.adopt(std::move(incoming), *this);
  connection_->send({std::as_bytes(std::span(&frame_, 1)), {}});
}

void Link::State::connect(std::uint64_t now) {
  if (session == 0) session = random_session();
  attempt_ns = now;
  connection = transport.connect(identity.endpoint, events);
}

void Link::State::say_hello(wire::FrameKind kind) {
  wire::HelloBody body;
  body.lane = identity.lane;
  body.group = identity.group;
  body.resume = was_open ? 1 : 0;
  body.node = identity.self;
  body.expected_node = identity.peer;
  body.session = session;
  body.next_receive = arrivals.next();
  body.features = wire::kFeatureSubmitted | wire::kFeatureSend | wire::kFeatureLossyMoves |
                  wire::kFeatureLossySends | wire::kFeatureClientBlocks;
  const wire::HelloFrame frame = wire::make_hello(kind, body);
  send_control(std::as_bytes(std::span(&frame, 1)));
}

// Both sides now know what the other has received: everything after it is sent again.
void Link::State::open(std::uint64_t peer_next_receive, std::uint16_t common_version) {
  version = common_version;
  // Frames that are sent from within on_acked wait for their turn, since the link is not open yet.
  release_through(peer_next_receive - 1);
  if (state == LinkState::lost) return;  // closed in a callback
  const std::uint64_t now = clock.now_ns();
  if (was_open) ++stats.resumes;
  state = LinkState::open;
  was_open = true;
  heard_ns = now;
  heard_bytes = connection->received_bytes();
  arrivals.restart();
  for (std::uint64_t seq = unacked.first(); seq < unacked.next(); ++seq) {
    FrameRecord& record = unacked.at(seq);
    if (record.sent_ns != 0) ++stats.replayed_frames;
    transmit(record, now);
  }
}

void Link::State::refuse(std::unique_ptr<Incoming> incoming, Errc code, const char* text) {
  ++stats.refused_frames;
  if (code == Errc::protocol_error) sink.on_breach(link, text);
  refusal = std::make_unique<Refusal>(transport, std::move(incoming), Refusal::Reason{code, text},
                                      clock.now_ns() + kRefusalLinger);
}

bool Link::State::offer(std::unique_ptr<Incoming>& incoming, const wire::HelloBody& hello) {
  if (state == LinkState::lost) return false;
  if (hello.version_max < wire::kWireProtocolMin || hello.version_min > wire::kWireProtocol) {
    refuse(std::move(incoming), Errc::version_mismatch,
           wire::hello_error_text(wire::HelloError::no_common_version));
    return true;
  }
  if (hello.expected_node != wire::NodeId{} && hello.expected_node != identity.self) {
    refuse(std::move(incoming), Errc::peer_lost, "it was restarted since it was last heard of");
    return true;
  }
  if (hello.lane != identity.lane || hello.group != identity.group ||
      (identity.peer != wire::NodeId{} && hello.node != identity.peer)) {
    refuse(std::move(incoming), Errc::protocol_error, "the hello is for another link");
    return true;
  }
  if (hello.session == session) {
    if (identity.active || !unacked.may_continue_at(hello.next_receive)) {
      refuse(std::move(incoming), Errc::protocol_error, "the hello does not continue its session");
      return true;
    }
    accept(std::move(incoming), hello);
    return true;
  }
  if (hello.resume != 0) {
    refuse(std::move(incoming), Errc::peer_lost, "it does not know the session that is resumed");
    return true;
  }
  // Both sides may begin to connect at the same time: the lower node's session is used. The other's
  // hello may come after that one is open. A peer that has truly given up tries again.
  if (identity.active && identity.self < hello.node) {
    refuse(std::move(incoming), Errc::would_block, "this side is connecting already");
    return true;
  }
  if (was_open) {
    lose(Errc::peer_lost, "the peer has given this link up and begun a new one");
    return false;
  }
  identity.active = false;
  accept(std::move(incoming), hello);
  return true;
}

void Link::State::accept(std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello) {
  // The old connection goes first, so that no byte of it can arrive after the replay has begun.
  if (state == LinkState::open) {
    break_connection("the peer has opened another connection");
  } else {
    drop_connection();
  }
  if (state == LinkState::lost) return;  // closed in a callback
  identity.peer = hello.node;
  peer_features = hello.features;
  session = hello.session;
  connection = transport.adopt(std::move(incoming), events);
  say_hello(wire::FrameKind::hello_reply);
  open(hello.next_receive, std::min(hello.version_max, wire::kWireProtocol));
}

void Link::State::finish_hello_reply(const wire::FrameHeader& header) {
  const std::string where = "the daemon at " + to_text(identity.endpoint);
  const auto payload = std::span<const std::byte>(control_payload).first(sizeof(wire::HelloBody));
  const wire::ParsedHello parsed = wire::parse_hello(header, payload);
  if (parsed.error == wire::HelloError::bad_payload_crc) {
    break_connection(wire::hello_error_text(parsed.error));
    return;
  }
  if (parsed.error != wire::HelloError::none) {
    lose(wire::hello_error_code(parsed.error), where + ": " + wire::hello_error_text(parsed.error));
    return;
  }
  const wire::HelloBody& hello = parsed.body;
  if (identity.peer != wire::NodeId{} && hello.node != identity.peer) {
    lose(Errc::peer_lost, where + " was restarted");
    return;
  }
  if (hello.session != session || hello.lane != identity.lane || hello.group != identity.group ||
      !unacked.may_continue_at(hello.next_receive)) {
    lose(Errc::protocol_error, where + " answered with a hello that does not fit this link");
    return;
  }
  identity.peer = hello.node;
  peer_features = hello.features;
  open(hello.next_receive, parsed.version);
}

void Link::State::finish_refuse() {
  wire::RefuseBody body;
  std::memcpy(&body, control_payload.data(), sizeof body);
  body.text[sizeof body.text - 1] = '\0';
  const bool known = body.code > 0 && body.code < kErrcCount;
  const Errc code = known ? static_cast<Errc>(body.code) : Errc::protocol_error;
  if (code == Errc::would_block) {
    break_connection(body.text);
    return;
  }
  const std::string where = identity.active ? to_text(identity.endpoint) : "the other end";
  lose(code, "the daemon at " + where + " refused the link: " + body.text);
}

}  // namespace tern::net
