// What ranks send to each other: floods without another side, copies within a node, cancels, and
// entries of groups and tensors that are somebody else's.

#include <array>
#include <memory>
#include <optional>

#include "base/dtype.h"
#include "shm/sharding.h"
#include "tests/attack/attack.h"
#include "tests/attack/requests.h"

namespace tern::attack {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr auto kU8 = static_cast<std::uint8_t>(DType::u8);

// What its first lane accepts of it.
struct Group {
  std::uint64_t number = 0;
  std::uint32_t lanes = 1;
};

// Two ranks of one node, rank 0 being the first; empty if one is refused.
struct Pair {
  std::unique_ptr<HostileClient> first, second;
  Group group_of_first, group_of_second;
};
std::optional<Pair> make_pair(const Assault& assault, std::uint64_t arena_bytes = kMiB) {
  Pair made;
  for (auto* client : {&made.first, &made.second}) {
    *client = std::make_unique<HostileClient>(assault.target.socket);
    if (!(*client)->hello(arena_bytes, "attacker")) return std::nullopt;
  }
  const std::string id = mint(*made.first);
  if (!made.first->socket().send(shm::packet_bytes(join_packet(id, 0, 2)))) return std::nullopt;
  const auto second = ask<shm::GroupJoinedPacket>(*made.second, join_packet(id, 1, 2));
  const auto packet = made.first->receive();
  shm::GroupJoinedPacket first;
  if (!second || !packet || !shm::read_packet(packet->bytes, first)) return std::nullopt;
  made.group_of_first = {first.group, first.lane_count};
  made.group_of_second = {second->group, second->lane_count};
  return made;
}

shm::SubmitEntry entry_of(shm::OpKind kind, const Group& group, std::uint32_t peer) {
  shm::SubmitEntry entry = HostileClient::good_entry(group.number, 0);
  entry.kind = static_cast<std::uint16_t>(kind);
  entry.dtype = kU8;
  entry.root = peer;
  return entry;
}

// A tag whose sends meet their recvs on the first lane.
std::uint32_t draw_tag(Assault& assault, std::uint32_t destination, std::uint32_t lanes) {
  while (true) {
    const auto tag = static_cast<std::uint32_t>(assault.random());
    if (shm::lane_of_tag(destination, tag, lanes) == 0) return tag;
  }
}

void unmatched(Assault& assault, shm::OpKind kind) {
  const auto pair = make_pair(assault);
  if (!pair) return;
  auto entry = entry_of(kind, pair->group_of_first, 1);
  const std::uint32_t destination = kind == shm::OpKind::send ? 1 : 0;
  while (assault.goes_on()) {
    entry.sequence = draw_tag(assault, destination, pair->group_of_first.lanes);
    entry.count = assault.below(2) == 0 ? 8 : 100'000;
    ++entry.ticket;
    pair->first->submit(entry);
    pair->first->forget_completions();
  }
}
void unmatched_sends(Assault& assault) { unmatched(assault, shm::OpKind::send); }
void unmatched_recvs(Assault& assault) { unmatched(assault, shm::OpKind::recv); }

// Of 256 tags, so that each is looked for among many others.
void any_source_recvs(Assault& assault) {
  const auto pair = make_pair(assault);
  if (!pair) return;
  std::array<std::uint32_t, 256> tags{};
  for (auto& tag : tags) tag = draw_tag(assault, 0, pair->group_of_first.lanes);
  auto recv = entry_of(shm::OpKind::recv, pair->group_of_first, shm::kAnySource);
  auto send = entry_of(shm::OpKind::send, pair->group_of_second, 0);
  while (assault.goes_on()) {
    for (auto* entry : {&recv, &send}) {
      entry->sequence = tags[assault.below(tags.size())];
      ++entry->ticket;
    }
    pair->first->submit(recv);
    pair->second->submit(send);
    pair->first->forget_completions();
    pair->second->forget_completions();
  }
}

void cancelled_passes(Assault& assault) {
  const auto pair = make_pair(assault);
  if (!pair) return;
  auto entry = entry_of(shm::OpKind::send, pair->group_of_first, 1);
  shm::SubmitEntry cancel = HostileClient::good_entry(pair->group_of_first.number, 0);
  cancel.kind = static_cast<std::uint16_t>(shm::OpKind::cancel);
  while (assault.goes_on()) {
    const bool sends = assault.below(2) == 0;
    entry.kind = static_cast<std::uint16_t>(sends ? shm::OpKind::send : shm::OpKind::recv);
    entry.sequence = draw_tag(assault, sends ? 1 : 0, pair->group_of_first.lanes);
    ++entry.ticket;
    pair->first->submit(entry);
    cancel.ticket = entry.ticket - assault.below(4);
    pair->first->submit(cancel);
    pair->first->forget_completions();
  }
}

// A rank sends to itself: nothing but copies.
void own_copies(Assault& assault) {
  constexpr std::uint64_t kBytes = 32 * kMiB;
  HostileClient client(assault.target.socket);
  if (!client.hello(2 * kBytes + kMiB, "attacker")) return;
  client.take_pages(2 * kBytes);
  const auto joined = ask<shm::GroupJoinedPacket>(client, join_packet(mint(client), 0, 1));
  if (!joined) return;
  const Group group{joined->group, joined->lane_count};
  auto send = entry_of(shm::OpKind::send, group, 0);
  auto recv = entry_of(shm::OpKind::recv, group, 0);
  send.count = recv.count = kBytes;
  recv.output_offset = kBytes;
  send.output_offset = 0;
  send.sequence = recv.sequence = draw_tag(assault, 0, group.lanes);
  while (assault.goes_on()) {
    ++send.ticket;
    ++recv.ticket;
    while (!client.submit(send)) client.completion(std::chrono::milliseconds(5));
    while (!client.submit(recv)) client.completion(std::chrono::milliseconds(5));
    client.forget_completions();
  }
}

// As a library's batch is: as many entries as the ring has, published at once. Some are wrong.
void batches(Assault& assault) {
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  client.take_pages(kMiB);
  const std::uint64_t group = join_alone(client);
  for (std::uint64_t use = 0; assault.goes_on();) {
    std::vector<shm::SubmitEntry> batch;
    for (std::size_t i = 0; i < shm::kRingEntries; ++i) {
      auto entry = HostileClient::good_entry(group, use);
      if (assault.below(3) == 0) {
        entry.kind = static_cast<std::uint16_t>(assault.below(20));
        entry.count = assault.random() >> assault.below(64);
        entry.output_offset = assault.below(2 * kMiB);
      } else {
        ++use;
      }
      batch.push_back(entry);
    }
    while (!client.submit_at_once(batch)) client.forget_completions();
  }
}

// Numbers of groups and tensors are small, and those of others are easily met.
void tensors_of_others(Assault& assault) {
  static constexpr shm::OpKind kKinds[] = {shm::OpKind::reduce_scatter, shm::OpKind::all_gather,
                                           shm::OpKind::all_reduce,     shm::OpKind::send,
                                           shm::OpKind::recv,           shm::OpKind::cancel};
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  client.take_pages(kMiB);
  const std::uint64_t own = join_alone(client);
  for (std::uint64_t use = 0; assault.goes_on(); ++use) {
    auto entry = HostileClient::good_entry(assault.below(2) == 0 ? own : assault.below(200), use);
    entry.kind = static_cast<std::uint16_t>(kKinds[assault.below(std::size(kKinds))]);
    entry.tensor = assault.below(200);
    entry.ticket = 1 + assault.below(use + 1);
    entry.role = static_cast<std::uint8_t>(assault.below(4));
    client.submit(entry);
    client.forget_completions();
  }
}

constexpr Attack kAttacks[] = {
    {"unmatched_sends", "sends that nobody receives hold only their user's window",
     unmatched_sends},
    {"unmatched_recvs", "recvs that nobody sends to hold only their user's window",
     unmatched_recvs},
    {"any_source_recvs", "a recv from any source looks at no more than its own group's sends",
     any_source_recvs},
    {"cancelled_passes", "sends and recvs that are cancelled leave nothing behind",
     cancelled_passes},
    {"own_copies", "copies from rank to rank take no more of a lane than their user's share",
     own_copies},
    {"batches", "a ring full of entries at once takes no more than its user's share", batches},
    {"tensors_of_others", "no entry reaches a group or a tensor of another user",
     tensors_of_others},
};

}  // namespace

std::span<const Attack> pass_attacks() { return kAttacks; }

}  // namespace tern::attack
