#include <array>
#include <atomic>
#include <cstring>

#include "tests/e2e/socket_fuzzer.h"
#include "wire/block.h"

namespace tern::e2e {
namespace {

using shm::PacketKind;

constexpr std::size_t kHeldClients = 16;
constexpr std::size_t kBody = sizeof(shm::PacketHeader);

template <typename Packet>
std::vector<std::byte> bytes_of(const Packet& packet) {
  const auto bytes = shm::packet_bytes(packet);
  return {bytes.begin(), bytes.end()};
}

template <std::size_t size>
void set(char (&field)[size], const std::string& text) {
  std::snprintf(field, size, "%s", text.c_str());
}

void store(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(word).store(value);
}

}  // namespace

// Without a hello nothing else is heard; a wrong one is refused.
bool ClientFuzzer::greet(HostileClient& client) {
  auto hello = shm::make_packet<shm::HelloPacket>(PacketKind::hello, 1);
  hello.abi_min = hello.abi_max = wire::kShmAbi;
  hello.arena_bytes = 1 << 20;
  set(hello.job, "hostile");
  if (mutator_.one_in(6)) {
    change_fields(mutator_, hello, mutator_.one_in(4) ? 0 : kBody);
    send(client, bytes_of(hello));
    client.drain();
    return false;
  }
  // Labels are bytes of users, not always what the daemon takes.
  const std::string job = mutator_.one_in(12) ? "\xff\xfe\x80" : "hostile";
  return client.hello(1 << 20, job.c_str());
}

bool ClientFuzzer::send(HostileClient& client, std::vector<std::byte> packet) {
  std::vector<int> descriptors;
  if (mutator_.one_in(20)) descriptors.assign(1 + mutator_.below(shm::kMaxPacketFds), 0);
  if (packet.empty() || packet.size() > shm::kMaxPacketBytes) packet.resize(1);
  while (true) {
    const auto sent = client.socket().send(packet, descriptors);
    if (sent) return client.drain();
    if (sent.error().code != Errc::would_block) return false;
    pollfd entry{client.socket().fd(), POLLOUT, 0};
    ::poll(&entry, 1, 1000);
    if (!client.drain()) return false;
  }
}

bool ClientFuzzer::send_packet(HostileClient& client) {
  const std::uint64_t request = 10 + mutator_.below(1000);
  std::vector<std::byte> packet;
  switch (mutator_.below(11)) {
    case 0:
      packet = bytes_of(shm::make_packet<HeaderOnly>(PacketKind::group_mint, request));
      break;
    case 1: {
      auto join = shm::make_packet<shm::GroupJoinPacket>(PacketKind::group_join, request);
      std::string id = group_id_;
      id.back() = id.back() == '0' ? '1' : '0';  // it knows all but the secret
      set(join.id, id);
      join.size = 2;
      join.timeout_ms = 50;
      packet = bytes_of(join);
      break;
    }
    case 2: {
      auto leave = shm::make_packet<shm::GroupLeavePacket>(PacketKind::group_leave, request);
      leave.group = mutator_.one_in(8) ? group_ : mutator_.below(64);
      packet = bytes_of(leave);
      break;
    }
    case 3:
    case 4: {
      auto declare =
          shm::make_packet<shm::TensorDeclarePacket>(PacketKind::tensor_declare, request);
      declare.group = group_;
      declare.count = 1000;
      declare.role = static_cast<std::uint8_t>(mutator_.below(4));
      declare.client_blocks = static_cast<std::uint8_t>(mutator_.below(3));
      set(declare.name, std::string("t\xff") + std::to_string(mutator_.below(5)));
      static constexpr const char* kRecipes[] = {"",
                                                 "raw",
                                                 "3lc:s=1",
                                                 "auto",
                                                 "diana(natural)",
                                                 "lossless",
                                                 "replay:choices-1",
                                                 "int:bits=4+huffman"};
      set(declare.recipe, kRecipes[mutator_.below(std::size(kRecipes))]);
      packet = bytes_of(declare);
      break;
    }
    case 5:
    case 6: {
      static constexpr PacketKind kKinds[] = {PacketKind::tensor_release, PacketKind::tensor_stats,
                                              PacketKind::tensor_blocks,
                                              PacketKind::tensor_recipes};
      auto ask = shm::make_packet<shm::TensorReleasePacket>(
          kKinds[mutator_.below(std::size(kKinds))], request);
      ask.group = group_;
      ask.tensor = tensor_;
      packet = bytes_of(ask);
      break;
    }
    case 7: {
      auto move = shm::make_packet<shm::TensorStatePacket>(PacketKind::tensor_state, request);
      move.group = group_;
      move.tensor = tensor_;
      move.bytes = 4096;
      move.action = static_cast<std::uint32_t>(mutator_.below(4));
      packet = bytes_of(move);
      break;
    }
    case 8: {
      auto split = shm::make_packet<shm::GroupSplitPacket>(PacketKind::group_split, request);
      split.group = mutator_.one_in(4) ? mutator_.below(64) : group_;
      split.color = static_cast<std::int32_t>(mutator_.below(4)) - 1;
      split.timeout_ms = 50;
      packet = bytes_of(split);
      break;
    }
    case 9: {
      auto report = shm::make_packet<shm::DeviceReportPacket>(PacketKind::device_report, request);
      report.device = static_cast<std::uint32_t>(mutator_.below(17));
      report.device_bytes = report.pinned_bytes = mutator_.below(shm::kMaxReportedBytes);
      report.pinning_failures = mutator_.below(3);
      set(report.pinning_problem, "\xff\x1b[2J");
      packet = bytes_of(report);
      break;
    }
    default: {
      if (!mutator_.one_in(20)) return true;
      packet = bytes_of(shm::make_packet<HeaderOnly>(PacketKind::goodbye, request));
    }
  }
  // Its header stays right mostly: another kind, size or magic may end the connection.
  const std::span<std::byte> body = std::span(packet).subspan(kBody);
  if (!mutator_.one_in(4)) mutator_.change(body);
  if (mutator_.one_in(200)) mutator_.distort(packet);
  return send(client, std::move(packet));
}

// Of the tensor, right but for what is changed then; lanes read it meanwhile.
void ClientFuzzer::set_block(HostileClient& client, shm::SubmitEntry& entry) {
  entry.tensor = tensor_;
  entry.flags = shm::kEntryHasBlocks;
  const auto slot = client.segment().arena().first(4096);
  wire::BlockHeader header;
  header.elements = static_cast<std::uint32_t>(entry.count);
  header.payload_bytes = static_cast<std::uint32_t>(entry.count * sizeof(float));
  wire::write_block_header(header, slot.first<wire::kBlockHeaderBytes>());
  if (!mutator_.one_in(4)) mutator_.change(slot.first(wire::kBlockHeaderBytes));
}

std::uint64_t ClientFuzzer::submit_entries(HostileClient& client) {
  std::uint64_t count = 0;
  for (; count < 120; ++count) {
    shm::SubmitEntry entry = HostileClient::good_entry(group_, mutator_.below(8));
    if (mutator_.one_in(3)) entry.tensor = tensor_;
    if (mutator_.one_in(10)) entry.group = mutator_.below(64);  // of others
    if (mutator_.one_in(3)) entry.kind = static_cast<std::uint16_t>(mutator_.below(18));
    if (mutator_.one_in(4)) {
      entry.flags = shm::kEntryHasCounts;
      entry.counts_offset = mutator_.below(4096);
      if (mutator_.one_in(2)) entry.count = 0;  // what the counts of zeros add up to
      // Each lane may see other counts: they change while it reads them.
      const auto arena = client.segment().arena();
      mutator_.change(arena.subspan(entry.counts_offset, 64));
    }
    if (has_blocks_ && mutator_.one_in(3)) set_block(client, entry);
    // Sends of the rank to itself, which meet some of these.
    if (mutator_.one_in(6)) {
      entry.kind =
          static_cast<std::uint16_t>(mutator_.one_in(2) ? shm::OpKind::send : shm::OpKind::recv);
      if (mutator_.one_in(3)) entry.root = shm::kAnySource;
      if (mutator_.one_in(3)) entry.count = mutator_.below(20'000);
    }
    if (!mutator_.one_in(4)) change_fields(mutator_, entry);
    if (!client.submit(entry)) break;
    if (mutator_.one_in(3)) client.forget_completions();
  }
  // What the lane has not taken it has not looked at.
  eventually([&] {
    client.forget_completions();
    return client.all_taken() || !client.drain();
  });
  return count;
}

void ClientFuzzer::scribble(HostileClient& client) {
  auto& rings = client.segment().lane_rings(0);
  switch (mutator_.below(5)) {
    case 0:
      store(rings.submit.tail, mutator_.number());
      break;
    case 1:
      store(rings.submit.head, mutator_.number());
      break;
    case 2:
      store(rings.completion.head, mutator_.number());
      break;
    case 3: {
      const auto ring = client.segment().submit_ring(0);
      for (auto& entry : ring.entries) change_fields(mutator_, entry);
      store(rings.submit.tail, shm::kRingEntries);
      break;
    }
    default: {
      auto* words = static_cast<std::uint64_t*>(static_cast<void*>(&client.segment().header()));
      for (int i = 0; i < 8; ++i) {
        store(words[mutator_.below(sizeof(shm::SegmentHeader) / 8)], mutator_.number());
      }
    }
  }
  client.wake();
}

std::uint64_t ClientFuzzer::round() {
  auto client = std::make_unique<HostileClient>(daemon_.socket());
  if (mutator_.one_in(16)) {
    held_.push_back(std::move(client));
    if (held_.size() > kHeldClients) held_.pop_front();
    return 1;
  }
  if (mutator_.one_in(8)) {
    auto packet = mutator_.noise(shm::kMaxPacketBytes);
    send(*client, std::move(packet));
    return 1;
  }
  std::uint64_t inputs = 1;
  if (!greet(*client)) return inputs;
  tensor_ = mutator_.one_in(8) ? mutator_.number() : 0;
  group_ = mutator_.one_in(8) ? 1 : client->join_alone();
  if (group_ == 0) return inputs;
  inputs += 2;
  const bool blocks = mutator_.one_in(2);
  const auto declared = client->declare(group_, "tensor", blocks);
  if (declared && mutator_.one_in(2)) tensor_ = *declared;
  has_blocks_ = blocks && declared == tensor_;
  for (std::uint64_t left = 20 + mutator_.below(100); left > 0; --left, ++inputs) {
    if (!send_packet(*client)) return inputs;
  }
  inputs += submit_entries(*client);
  if (mutator_.one_in(3)) {
    scribble(*client);
    ++inputs;
  }
  return inputs;
}

}  // namespace tern::e2e
