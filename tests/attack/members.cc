// A daemon that is a member of the attacker's own group, whose other rank is a client of the daemon
// that is attacked: it has proven itself and knows the token, and sends what it likes.

#include <poll.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>
#include <vector>

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

constexpr std::uint64_t kLargeCount = 100'000;  // elements of a byte each, in several pieces

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
    const auto kind = assault.below(2) == 0 ? shm::OpKind::send : shm::OpKind::recv;
    submit(kind, assault.below(2) == 0 ? 8 : kLargeCount, assault.below(4));
  }
  void send(std::uint64_t count, std::uint64_t tag) { submit(shm::OpKind::send, count, tag); }
  // To what it has been sent.
  bool answer(FrameKind kind, wire::FrameHeader about) {
    wire::FrameHeader header = member.header();
    header.tensor = about.tensor;
    header.op_seq = about.op_seq;
    header.chunk = about.chunk;
    return lane().send(lane().next(kind, header, {}));
  }
  wire::FrameHeader header(std::uint64_t number, std::uint32_t tag) const {
    wire::FrameHeader header = member.header();
    header.tensor = std::uint64_t{1} << 32;  // from rank 1 to rank 0
    header.op_seq = number;
    header.chunk = tag;
    return header;
  }
  std::uint32_t other_node() const { return 1 - member.node(); }
  e2e::HostilePeer& lane() { return member.lane(other_node()); }

  void submit(shm::OpKind kind, std::uint64_t count, std::uint64_t tag) {
    auto entry = HostileClient::good_entry(group, tag);
    entry.kind = static_cast<std::uint16_t>(kind);
    entry.dtype = static_cast<std::uint8_t>(DType::u8);
    entry.root = 1;
    entry.count = count;
    entry.ticket = ++tickets;
    client.submit(entry);
    client.forget_completions();
  }

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
      body.count = kLargeCount;
      body.dtype = static_cast<std::uint8_t>(DType::u8);
      const auto header = at.header(number % 256, static_cast<std::uint32_t>(number % 4));
      const auto promise = std::as_bytes(std::span(&body, 1));
      if (!at.lane().send(at.lane().next(FrameKind::send_offer, header, promise))) break;
      if (!at.lane().send(at.lane().next(FrameKind::send_accept, header, {}))) break;
      if (!at.lane().drain()) break;
    }
  }
}

// Takes what is sent and says so to the operations, but acknowledges no frame of the link: until it
// does the daemon keeps each to send it again.
std::unique_ptr<Foothold> take_and_not_acknowledge(Assault& assault) {
  constexpr int kSends = 8;  // soon after them the daemon sends no more
  auto at = std::make_unique<Foothold>(assault);
  for (int i = 0; at->group != 0 && i < kSends && assault.goes_on(); ++i) {
    at->send(kLargeCount, assault.below(4));
    const auto offer = at->member.wait_for(at->other_node(), FrameKind::send_offer);
    if (!offer || !at->answer(FrameKind::send_accept, offer->header)) break;
    std::uint64_t taken = 0;
    while (taken < kLargeCount) {
      const auto piece = at->member.wait_for(at->other_node(), FrameKind::send_piece);
      if (!piece) return at;
      taken += piece->payload.size();
    }
    if (!at->answer(FrameKind::send_end, offer->header)) break;
  }
  return at;
}

void member_unacked(Assault& assault) {
  Held<std::unique_ptr<Foothold>> held(32);
  while (true) held.hold(take_and_not_acknowledge(assault));
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
  const std::uint32_t owner = at->other_node();
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

// Groups of many nodes, all but one of them made up. Each is there until the next one has begun, so
// that both have about as many links as one source may have.
void member_crowds(Assault& assault) {
  constexpr std::uint32_t kNodes = 60;
  std::vector<std::unique_ptr<HostileMember>> last;
  while (true) {
    HostileClient client(assault.target.socket);
    if (!enter(client)) continue;
    while (assault.goes_on()) {
      auto join = join_packet(mint(client), 0, kNodes);
      join.timeout_ms = 2000;
      if (!client.socket().send(shm::packet_bytes(join))) break;
      std::vector<std::unique_ptr<HostileMember>> members;
      std::vector<std::jthread> joins;
      const std::uint64_t number = 1 + assault.below(1'000'000'000);
      for (std::uint32_t rank = 1; rank < kNodes; ++rank) {
        HostileMember& member = *members.emplace_back(std::make_unique<HostileMember>());
        joins.emplace_back([=, &member] { member.join(join.id, number + rank, rank, kNodes); });
      }
      joins.clear();
      if (!client.receive()) break;
      last = std::move(members);
    }
  }
}

constexpr Attack kAttacks[] = {
    {"member_frames", "a member's frames are checked before they are believed", member_frames},
    {"member_promises", "a member that keeps no promise holds up only its own group",
     member_promises},
    {"member_unacked",
     "what a member never acknowledges ends its link, and takes no room of others", member_unacked},
    {"member_halves", "a frame that a member begins and never ends holds up only its own group",
     member_halves},
    {"member_crowds", "of groups of many nodes a user has few, which hold bounded memory",
     member_crowds},
    {"member_gatherings", "of a group one split gathers at a time, whatever a member says",
     member_gatherings},
};

}  // namespace

std::span<const Attack> member_attacks() { return kAttacks; }

}  // namespace tern::attack
