// The port for daemons of other nodes, which everybody on the machine reaches.

#include <memory>
#include <nlohmann/json.hpp>

#include "tests/attack/attack.h"
#include "tests/attack/sockets.h"
#include "tests/e2e/hostile_peer.h"
#include "wire/rdma.h"

namespace tern::attack {
namespace {

using e2e::HostilePeer;
using wire::FrameKind;

std::unique_ptr<HostilePeer> connect(const Assault& assault) {
  return std::make_unique<HostilePeer>(assault.target.port);
}

// A link between conductors, as a daemon would open it; null if it is refused.
std::unique_ptr<HostilePeer> open_link(Assault& assault, std::uint16_t lane = wire::kConductorLane,
                                       std::uint64_t group = 0) {
  auto peer = connect(assault);
  auto hello = HostilePeer::hello_body(lane, assault.random());
  hello.group = group;
  return peer->hello(hello) ? std::move(peer) : nullptr;
}

void peer_silent(Assault& assault) {
  Held<Fd> held(1024);
  while (assault.goes_on()) held.hold(connect_port(assault.target.port));
}

void peer_storm(Assault& assault) {
  while (assault.goes_on()) connect_port(assault.target.port);
}

void peer_links(Assault& assault) {
  Held<std::unique_ptr<HostilePeer>> held(1500);
  while (assault.goes_on()) held.hold(open_link(assault));
}

void peer_link_storm(Assault& assault) {
  while (assault.goes_on()) open_link(assault);
}

void lane_links(Assault& assault) {
  Held<std::unique_ptr<HostilePeer>> held(1024);
  while (assault.goes_on()) held.hold(open_link(assault, 0, assault.random()));
}

// With a device each of them is offered RDMA, for which the daemon takes memory to receive in.
void rdma_offers(Assault& assault) {
  Held<std::unique_ptr<HostilePeer>> held(1024);
  while (assault.goes_on()) {
    auto& peer = held.hold(connect(assault));
    auto hello = HostilePeer::hello_body(0, assault.random());
    hello.group = assault.random();
    hello.features = wire::kFeatureRdma;
    peer->hello(hello);
  }
}

std::string hex(Assault& assault) {
  std::string text;
  while (text.size() < 32) text += "0123456789abcdef"[assault.below(16)];
  return text;
}

// One connection that asks for places in groups that nobody has minted.
void peer_joins(Assault& assault) {
  const std::string unknown_field(3500, 'x');
  while (true) {
    const auto peer = open_link(assault);
    while (peer != nullptr && assault.goes_on()) {
      const nlohmann::json join = {{"t", "join"},
                                   {"uid", hex(assault)},
                                   {"rank", 1},
                                   {"size", 2},
                                   {"nonce", hex(assault)},
                                   {"node", hex(assault)},
                                   {"address", "127.0.0.1:1"},
                                   {"lanes", 1},
                                   {"chunk_bytes", 16384},
                                   {"eager_bytes", 0},
                                   {"max_ops", 64},
                                   {"lossy_min", 0},
                                   {"op_timeout_ms", 30000},
                                   {"verify", false},
                                   {"seed", 0},
                                   {"completed", 0},
                                   {"more", unknown_field}};
      if (!peer->send(peer->control(join.dump())) || !peer->drain()) break;
    }
  }
}

// Messages as large as they may be, in a form of which a parser has most to make.
void peer_many_values(Assault& assault) {
  constexpr std::size_t kMost = 900'000;
  static constexpr std::string_view kParts[] = {"0,", "[],", "{},", "\"\","};
  while (true) {
    const auto peer = open_link(assault);
    while (peer != nullptr && assault.goes_on()) {
      std::string text = R"({"t":"join","more":[)";
      const std::string_view part = kParts[assault.below(std::size(kParts))];
      while (text.size() < kMost) text += part;
      text += "0]}";
      if (!peer->send(peer->control(text)) || !peer->drain()) break;
    }
  }
}

void peer_garbage(Assault& assault) {
  while (assault.goes_on()) {
    auto peer = assault.below(2) == 0 ? connect(assault) : open_link(assault);
    if (peer == nullptr) continue;
    auto bytes = assault.noise(1 + assault.below(20'000));
    if (assault.below(2) == 0) {
      wire::FrameHeader header;
      header.kind = static_cast<std::uint8_t>(assault.below(30));
      header.link_seq = assault.below(4);
      header.ack_seq = assault.below(3) == 0 ? assault.random() : 0;
      bytes = HostilePeer::frame(header, bytes);
    }
    peer->send(bytes);
    peer->drain();
  }
}

// A frame is begun on each of many links, and never ended. It is as large as a message may be, or
// too large for one.
void peer_half_frames(Assault& assault) {
  Held<std::unique_ptr<HostilePeer>> held(256);
  while (assault.goes_on()) {
    auto& peer = held.hold(open_link(assault));
    if (peer == nullptr) continue;
    wire::FrameHeader header;
    header.kind = static_cast<std::uint8_t>(FrameKind::control);
    header.link_seq = 1;
    header.payload_bytes = assault.below(2) == 0 ? 16 << 20 : 1 << 20;
    peer->send(HostilePeer::sealed(header, assault.noise(100'000)));
  }
}

// Asks for answers and takes none of them.
void peer_unread(Assault& assault) {
  Held<std::unique_ptr<HostilePeer>> held(16);
  while (assault.goes_on()) {
    auto& peer = held.hold(open_link(assault));
    if (peer == nullptr) continue;
    for (int i = 0; i < 2000; ++i) {
      const nlohmann::json join = {{"t", "join"}, {"uid", hex(assault)}, {"rank", 0}, {"size", 1}};
      if (!peer->send(peer->control(join.dump()))) break;
    }
  }
}

void peer_resumes(Assault& assault) {
  while (assault.goes_on()) {
    const auto peer = connect(assault);
    auto hello =
        HostilePeer::hello_body(static_cast<std::uint16_t>(assault.below(2) - 1), assault.random());
    hello.resume = 1;
    hello.next_receive = assault.random();
    peer->hello(hello);
  }
}

void peer_trickle(Assault& assault) {
  const auto hello = HostilePeer::hello_frame(HostilePeer::hello_body(wire::kConductorLane, 7));
  Held<Fd> held(256);
  for (std::size_t at = 0; assault.goes_on(); at = (at + 1) % (hello.size() - 1)) {
    if (at == 0) {
      for (int i = 0; i < 64; ++i) held.hold(connect_port(assault.target.port));
    }
    for (const Fd& socket : held.all()) push(socket, std::span(hello).subspan(at, 1));
  }
}

// Frames of ops, under tokens that are drawn.
void guessed_tokens(Assault& assault) {
  static constexpr FrameKind kKinds[] = {FrameKind::announce,     FrameKind::grant,
                                         FrameKind::contribution, FrameKind::result,
                                         FrameKind::op_fail,      FrameKind::verify};
  while (true) {
    const auto peer = open_link(assault, 0, assault.random());
    while (peer != nullptr && assault.goes_on()) {
      wire::FrameHeader header;
      header.group = assault.random();
      header.epoch = 1;
      header.op_seq = assault.below(100);
      header.source_node = static_cast<std::uint16_t>(assault.below(3));
      const FrameKind kind = kKinds[assault.below(std::size(kKinds))];
      const auto payload = assault.noise(assault.below(300));
      if (!peer->send(peer->next(kind, header, payload)) || !peer->drain()) break;
    }
  }
}

constexpr Attack kAttacks[] = {
    {"peer_silent", "connections that say nothing keep no node out", peer_silent},
    {"peer_storm", "connections that come and go keep no node out", peer_storm},
    {"peer_links", "links that nobody uses keep no node out", peer_links},
    {"peer_link_storm", "links that come and go leave nothing behind", peer_link_storm},
    {"lane_links", "links of no group hold bounded memory", lane_links},
    {"rdma_offers", "offers of RDMA that nobody takes hold bounded memory", rdma_offers},
    {"peer_joins", "one connection takes no place of other groups", peer_joins},
    {"peer_many_values", "a message costs what its bytes cost, whatever it is made of",
     peer_many_values},
    {"peer_garbage", "what is no frame ends its connection alone", peer_garbage},
    {"peer_half_frames", "memory is not promised to frames that have not come", peer_half_frames},
    {"peer_unread", "who does not read his answers holds bounded memory", peer_unread},
    {"peer_resumes", "no link is resumed by who did not open it", peer_resumes},
    {"peer_trickle", "half a hello holds a place no longer than handshake_timeout", peer_trickle},
    {"guessed_tokens", "frames of a group need its token", guessed_tokens},
};

}  // namespace

std::span<const Attack> peer_attacks() { return kAttacks; }

}  // namespace tern::attack
