// A daemon that is a member of the attacker's own group, whose other rank is a client of the daemon
// that is attacked: it has proven itself and knows the token, and sends what it likes.

#include <poll.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/dtype.h"
#include "tests/attack/attack.h"
#include "tests/attack/requests.h"
#include "tests/attack/sockets.h"
#include "tests/e2e/hostile_member.h"

namespace tern::attack {
namespace {

using e2e::HostileMember;
using wire::FrameKind;

constexpr FrameKind kKinds[] = {FrameKind::send_offer,    FrameKind::send_accept,
                                FrameKind::send_piece,    FrameKind::send_end,
                                FrameKind::send_withdraw, FrameKind::rank_left};

// Rank 0 is a client, rank 1 the member; the epoch has begun if the group's number is not 0.
struct Foothold {
  explicit Foothold(Assault& assault) : client(assault.target.socket) {
    if (!enter(client)) return;
    const std::string id = mint(client);
    if (!client.socket().send(shm::packet_bytes(join_packet(id, 0, 2)))) return;
    if (!member.join(id, 1 + assault.below(1'000'000'000), 1, 2).empty()) return;
    const auto packet = client.receive();
    shm::GroupJoinedPacket joined;
    if (packet && shm::read_packet(packet->bytes, joined)) group = joined.group;
  }

  // A send to the member, or a recv from it.
  void pass(Assault& assault) {
    auto entry = HostileClient::good_entry(group, assault.below(4));
    entry.kind =
        static_cast<std::uint16_t>(assault.below(2) == 0 ? shm::OpKind::send : shm::OpKind::recv);
    entry.dtype = static_cast<std::uint8_t>(DType::u8);
    entry.root = 1;
    entry.count = assault.below(2) == 0 ? 8 : 100'000;
    entry.ticket = ++tickets;
    client.submit(entry);
    client.forget_completions();
  }
  wire::FrameHeader header(std::uint64_t number, std::uint32_t tag) const {
    wire::FrameHeader header = member.header();
    header.tensor = std::uint64_t{1} << 32;  // from rank 1 to rank 0
    header.op_seq = number;
    header.chunk = tag;
    return header;
  }
  e2e::HostilePeer& lane() { return member.lane(1 - member.node()); }

  HostileClient client;
  HostileMember member{wire::kFeatureSend};
  std::uint64_t group = 0;
  std::uint64_t tickets = 0;
};

std::vector<std::byte> offer(Assault& assault) {
  wire::SendOfferBody body{};
  body.count = assault.below(4) == 0 ? assault.random() : assault.below(200'000);
  body.dtype = static_cast<std::uint8_t>(assault.below(8) == 0 ? assault.below(256)
                                                               : static_cast<unsigned>(DType::u8));
  body.eager = static_cast<std::uint8_t>(assault.below(2));
  const auto bytes = std::as_bytes(std::span(&body, 1));
  return {bytes.begin(), bytes.end()};
}

// Any frame of a send at any time; a wrong one ends the link, and the group with it.
void member_frames(Assault& assault) {
  while (true) {
    Foothold at(assault);
    while (at.group != 0 && assault.goes_on()) {
      at.pass(assault);
      const FrameKind kind = kKinds[assault.below(std::size(kKinds))];
      auto header = at.header(assault.below(8), static_cast<std::uint32_t>(assault.below(4)));
      if (assault.below(20) == 0) header.tensor = assault.random();
      const auto payload = kind == FrameKind::send_offer   ? offer(assault)
                           : kind == FrameKind::send_piece ? assault.noise(assault.below(20'000))
                                                           : std::vector<std::byte>();
      if (!at.lane().send(at.lane().next(kind, header, payload)) || !at.lane().drain()) break;
    }
  }
}

// Offers what it never sends, takes what it never ends, and acknowledges everything.
void member_promises(Assault& assault) {
  while (true) {
    Foothold at(assault);
    for (std::uint64_t number = 0; at.group != 0 && assault.goes_on(); ++number) {
      at.pass(assault);
      wire::SendOfferBody body{};
      body.count = 100'000;
      body.dtype = static_cast<std::uint8_t>(DType::u8);
      const auto header = at.header(number % 256, static_cast<std::uint32_t>(number % 4));
      const auto promise = std::as_bytes(std::span(&body, 1));
      if (!at.lane().send(at.lane().next(FrameKind::send_offer, header, promise))) break;
      if (!at.lane().send(at.lane().next(FrameKind::send_accept, header, {}))) break;
      if (!at.lane().drain()) break;
    }
  }
}

// Begins a contribution that is granted, and sends half of it.
std::unique_ptr<Foothold> begin_a_frame(Assault& assault) {
  auto at = std::make_unique<Foothold>(assault);
  if (at->group == 0) return nullptr;
  auto entry = HostileClient::good_entry(at->group, 0);
  entry.count = 40'000;
  entry.output_offset = 0;
  at->client.submit(entry);
  const auto op = at->member.wait_for_announcements();
  if (!op || !at->member.announce(*op)) return nullptr;
  const std::uint32_t owner = 1 - at->member.node();
  if (!at->member.wait_for(owner, FrameKind::grant)) return nullptr;
  auto header = op->header;
  header.chunk = op->chunks_of(owner, at->member.nodes()).front();
  const auto frame = at->lane().next(FrameKind::contribution, header, assault.noise(16'000));
  return at->lane().send(std::span(frame).first(frame.size() / 2)) ? std::move(at) : nullptr;
}

// The rest of the frames comes by a byte now and then, so that the links live.
void member_halves(Assault& assault) {
  constexpr int kPauseMs = 10;
  const std::byte none{0};
  Held<std::unique_ptr<Foothold>> held(16);
  while (assault.goes_on()) {
    if (held.all().size() < 16) {
      if (auto one = begin_a_frame(assault)) held.hold(std::move(one));
    }
    std::erase_if(held.all(), [&](const auto& one) { return !one->lane().send({&none, 1}); });
    ::poll(nullptr, 0, kPauseMs);
  }
}

// Splits of one group under all the numbers there are.
void member_gatherings(Assault& assault) {
  while (true) {
    Foothold at(assault);
    while (at.group != 0 && assault.goes_on()) {
      if (!at.member.split(static_cast<std::int64_t>(assault.below(1'000'000)))) break;
    }
  }
}

constexpr Attack kAttacks[] = {
    {"member_frames", "a member's frames are checked before they are believed", member_frames},
    {"member_promises", "a member that keeps no promise holds up only its own group",
     member_promises},
    {"member_halves", "a frame that a member begins and never ends holds up only its own group",
     member_halves},
    {"member_gatherings", "of a group one split gathers at a time, whatever a member says",
     member_gatherings},
};

}  // namespace

std::span<const Attack> member_attacks() { return kAttacks; }

}  // namespace tern::attack
