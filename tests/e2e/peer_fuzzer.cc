#include "tests/e2e/socket_fuzzer.h"
#include "wire/op_frames.h"

namespace tern::e2e {
namespace {

using nlohmann::json;
using wire::FrameKind;

constexpr std::size_t kHeldPeers = 16;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

// What a conductor says to another, with a field or two that are not so.
std::string PeerFuzzer::message() {
  static constexpr const char* kTypes[] = {
      "join",    "proof",   "members",  "start",     "end",       "ended", "left",    "ready",
      "refused", "waiting", "withdraw", "withdrawn", "challenge", "about", "divided", "nothing"};
  const std::string other(32, static_cast<char>('a' + mutator_.below(4)));
  json said = {{"t", kTypes[mutator_.below(std::size(kTypes))]},
               {"uid", mutator_.one_in(2) ? uid_ : other},
               {"rank", mutator_.below(4)},
               {"size", 1 + mutator_.below(4)},
               {"epoch", 1},
               {"node", other},
               {"nonce", other},
               {"address", "127.0.0.1:1"},
               {"code", mutator_.below(40)},
               {"text", "it ends"},
               {"hmac", other + other},
               {"lanes", 2},
               {"parent", uid_},
               {"sequence", 0},
               {"place", mutator_.below(4)},
               {"split", {{"parent", uid_}, {"epoch", 1}, {"sequence", 0}, {"color", 0}}},
               {"body", "{\"uid\":\"" + uid_ + "\",\"epoch\":1,\"nodes\":[]}"}};
  if (!mutator_.one_in(3)) mutator_.change(said);
  return said.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::byte> PeerFuzzer::conductor_frame(HostilePeer& peer) {
  std::string text = message();
  if (mutator_.one_in(100)) mutator_.change(std::as_writable_bytes(std::span(text)));
  return peer.next(FrameKind::control, as_bytes(text));
}

// A frame of an op of a group whose token it can only guess.
std::vector<std::byte> PeerFuzzer::lane_frame() {
  static constexpr FrameKind kKinds[] = {
      FrameKind::announce,   FrameKind::grant,      FrameKind::contribution,
      FrameKind::result,     FrameKind::op_fail,    FrameKind::verify,
      FrameKind::submitted,  FrameKind::send_offer, FrameKind::send_accept,
      FrameKind::send_piece, FrameKind::send_end,   FrameKind::send_withdraw,
      FrameKind::rank_left,  FrameKind::heartbeat,  FrameKind::ack};
  wire::FrameHeader header;
  const FrameKind kind = kKinds[mutator_.below(std::size(kKinds))];
  header.kind = static_cast<std::uint8_t>(kind);
  header.epoch = 1;
  header.group = mutator_.number();
  header.tensor = mutator_.one_in(2) ? 0 : mutator_.number();
  header.op_seq = mutator_.number();
  header.chunk = static_cast<std::uint32_t>(mutator_.number());
  header.count = static_cast<std::uint32_t>(mutator_.number());
  header.source_node = static_cast<std::uint16_t>(mutator_.below(3));
  header.leg = static_cast<std::uint8_t>(mutator_.below(3));
  header.link_seq = wire::is_sequenced(kind) ? ++sequence_ : sequence_;
  std::vector<std::byte> payload;
  if (kind == FrameKind::ack) {
    payload.resize(sizeof(wire::AckBody));
    mutator_.change(payload);
  } else if (kind != FrameKind::heartbeat && kind != FrameKind::grant) {
    payload = mutator_.noise(mutator_.one_in(40) ? 60'000 : 300);
  }
  return HostilePeer::frame(header, payload);
}

std::uint64_t PeerFuzzer::round() {
  // Before TLS too: noise, and connections that say nothing.
  auto peer = std::make_unique<HostilePeer>(daemon_.port(), mutator_.one_in(8) ? nullptr : tls_);
  const bool speaks_as_expected = tls_ == nullptr || peer->is_secure();
  if (mutator_.one_in(16)) {
    held_.push_back(std::move(peer));
    if (held_.size() > kHeldPeers) held_.pop_front();
    return 1;
  }
  if (mutator_.one_in(8) || !speaks_as_expected) {
    auto noise = mutator_.noise(3000);
    // The beginning of a record of a hand-shake.
    if (tls_ != nullptr && noise.size() > 2 && mutator_.one_in(2)) {
      noise[0] = std::byte{0x16};
      noise[1] = std::byte{3};
    }
    peer->send(noise);
    return 1;
  }
  const bool conductor = mutator_.one_in(2);
  wire::HelloBody body =
      HostilePeer::hello_body(conductor ? wire::kConductorLane : 0, (node_ = node_ + 1));
  if (mutator_.one_in(5)) {
    if (mutator_.one_in(2)) change_fields(mutator_, body);
    auto hello = HostilePeer::hello_frame(body);
    if (mutator_.one_in(2)) mutator_.distort(hello);
    peer->send(hello);
    if (mutator_.one_in(2)) peer->send(conductor_frame(*peer));
    return 1;
  }
  // Links of which nobody has heard anything more have so many places, and then a hello is turned
  // away until one of them is given up.
  const bool answered = peer->hello(body) || eventually([&] {
                          peer = std::make_unique<HostilePeer>(daemon_.port(), tls_);
                          return peer->hello(body);
                        });
  if (!answered) {
    problem_ = "a good hello was not answered";
    return 0;
  }
  sequence_ = 0;
  std::uint64_t inputs = 1;
  for (std::uint64_t left = 10 + mutator_.below(200); left > 0; --left, ++inputs) {
    auto frame = conductor ? conductor_frame(*peer) : lane_frame();
    // The link ends at the first frame that is none.
    if (mutator_.one_in(150)) mutator_.distort(frame);
    if (!peer->send(frame) || !peer->drain()) break;
  }
  if (mutator_.one_in(2)) peer->shut();
  return inputs;
}

}  // namespace tern::e2e
