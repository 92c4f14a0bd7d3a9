// A peer that says anything: frames with right CRCs and any fields, in any order, to a link that is
// connecting and then open. The link may lose the peer; it must not lose memory, or a cookie.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "net/link.h"
#include "net/loopback.h"
#include "wire/crc32c.h"
#include "wire/hello.h"

namespace tern::net {
namespace {

class Sink final : public LinkSink {
 public:
  PayloadPlace place_payload(Link&, const wire::FrameHeader& header) override {
    TERN_CHECK(!placed_);
    placed_ = true;
    payload_.assign(header.payload_bytes, std::byte{0});
    return {std::span(payload_).first(payload_.size() / 3),
            std::span(payload_).subspan(payload_.size() / 3)};
  }
  bool on_frame(Link&, const wire::FrameHeader& header, const PayloadPlace&, bool) override {
    TERN_CHECK(placed_ && header.link_seq == ++last_seq_);
    placed_ = false;
    return header.chunk != 0xdead;
  }
  void on_abandoned(Link&, const wire::FrameHeader&, const PayloadPlace&) override {
    TERN_CHECK(placed_);
    placed_ = false;
  }
  void on_acked(Link&, std::uint64_t cookie) override { TERN_CHECK(cookies.erase(cookie) == 1); }
  void on_lost(Link&, Errc, const char*) override {
    TERN_CHECK(cookies.empty() && !placed_);
    is_lost = true;
  }
  std::set<std::uint64_t> cookies;
  bool is_lost = false;

 private:
  std::vector<std::byte> payload_;
  std::uint64_t last_seq_ = 0;
  bool placed_ = false;
};

class Silent final : public ConnectionSink {
 public:
  void on_open(Connection&) override {}
  bool on_header(Connection&, const wire::FrameHeader&, PayloadPlace&) override { return true; }
  void on_frame(Connection&, const wire::FrameHeader&, const PayloadPlace&, bool) override {}
  void on_closed(Connection&, Errc, const char*) override {}
};

class Acceptance final : public AcceptorSink {
 public:
  void on_incoming(std::unique_ptr<Incoming> in, const wire::FrameHeader&,
                   const wire::HelloBody& body) override {
    incoming = std::move(in);
    hello = body;
  }
  void on_refused(const std::string&, Errc, const char*) override {}
  std::unique_ptr<Incoming> incoming;
  wire::HelloBody hello;
};

// One frame: an instruction byte, then fields. Small numbers, so that they often fit.
std::vector<std::byte> next_frame(std::span<const std::uint8_t>& rest, std::uint64_t session) {
  const auto take = [&rest]() -> std::uint8_t {
    if (rest.empty()) return 0;
    const std::uint8_t value = rest.front();
    rest = rest.subspan(1);
    return value;
  };
  static constexpr wire::FrameKind kKinds[] = {
      wire::FrameKind::hello_reply, wire::FrameKind::refuse,       wire::FrameKind::ack,
      wire::FrameKind::heartbeat,   wire::FrameKind::contribution, wire::FrameKind::control,
      wire::FrameKind::goodbye,     wire::FrameKind::hello};
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(kKinds[take() % 8]);
  header.link_seq = take();
  header.ack_seq = take();
  header.chunk = take() == 255 ? 0xdead : 0;
  std::vector<std::byte> payload(take());
  if (header.kind <= 2) {
    wire::HelloBody body;
    body.node = {2, take()};
    body.session = take() % 8 == 7 ? 99 : session;
    body.next_receive = take();
    payload.resize(sizeof body);
    std::memcpy(payload.data(), &body, sizeof body);
  } else if (header.kind == 3) {
    payload.resize(sizeof(wire::RefuseBody), std::byte{take()});
  } else if (header.kind == 4) {
    payload.resize(sizeof(wire::AckBody));
  }
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = wire::crc32c(payload);
  if (take() == 255) header.payload_crc ^= 1;
  wire::seal_frame_header(header);
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  if (take() == 255) bytes.resize(bytes.size() / 2);
  return bytes;
}

void run(std::span<const std::uint8_t> rest) {
  ManualClock clock;
  LoopbackNetwork network;
  LoopbackTransport transport(network, {"a", 1}), foreign_transport(network, {"b", 1});
  Acceptance accepted;
  LoopbackAcceptor acceptor(network, clock, {{"b", 1}}, accepted);
  Sink sink;
  Silent silent;
  std::unique_ptr<Connection> foreign;
  Link link(transport, clock, {{}, {{1, 1}, {}, 0, {"b", 1}, true}}, sink);
  const std::vector<std::byte> body(100, std::byte{1});
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(wire::FrameKind::result);
  for (std::uint64_t cookie = 1; !rest.empty() && !sink.is_lost; ++cookie) {
    clock.advance_ns(60'000'000);
    link.tick();
    transport.poll();
    acceptor.poll();
    if (accepted.incoming) foreign = foreign_transport.adopt(std::move(accepted.incoming), silent);
    if (foreign) foreign->send({next_frame(rest, accepted.hello.session), {}});
    if (cookie % 2 == 0) {
      sink.cookies.insert(cookie);
      link.send(header, {}, body, cookie);
    }
    transport.poll();
    foreign_transport.poll();
  }
  link.say_goodbye();
  TERN_CHECK(sink.is_lost && link.unacked_frames() == 0);
}

}  // namespace
}  // namespace tern::net

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tern::net::run({data, size});
  return 0;
}
