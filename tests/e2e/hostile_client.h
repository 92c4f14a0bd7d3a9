#pragma once

// A client without the library: it speaks the hand-shake by hand and writes what it likes into the
// memory that it shares with the daemon.

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "shm/layout.h"
#include "shm/packet_socket.h"
#include "shm/segment.h"
#include "shm/wakeup.h"
#include "tests/e2e/process.h"

namespace tern::e2e {

// A packet without a body.
struct HeaderOnly {
  shm::PacketHeader header;
};

class HostileClient {
 public:
  explicit HostileClient(const std::string& socket_path) {
    auto socket = shm::PacketSocket::connect(socket_path, 20'000);
    if (socket) socket_ = std::move(*socket);
  }

  shm::PacketSocket& socket() { return socket_; }

  // The next packet; nothing when the daemon has closed the connection or patience has run out.
  std::optional<shm::Packet> receive() {
    std::optional<shm::Packet> packet;
    eventually(
        [&] {
          auto got = socket_.receive();
          if (got) packet = std::move(*got);
          return packet.has_value() || got.error().code != Errc::would_block;
        },
        kPatience, socket_.fd());
    return packet;
  }
  // Takes what has come, and forgets it; false when the daemon has closed the connection.
  bool drain() {
    while (true) {
      auto got = socket_.receive();
      if (!got) return got.error().code == Errc::would_block;
    }
  }

  // Sends a packet and takes the answer as Answer; nothing if it is another.
  template <typename Answer, typename Request>
  std::optional<Answer> ask(const Request& request) {
    if (!socket_.send(shm::packet_bytes(request))) return std::nullopt;
    const auto packet = receive();
    Answer answer;
    if (packet && shm::read_packet(packet->bytes, answer)) return answer;
    shm::DonePacket done;
    ADD_FAILURE() << (!packet                                 ? "no answer"
                      : shm::read_packet(packet->bytes, done) ? done.detail
                                                              : "an unexpected answer");
    return std::nullopt;
  }

  // As tern_alloc does: what the daemon is to use of the arena must be there. False: there is no
  // memory for it.
  bool take_pages(std::uint64_t bytes) {
    const auto arena = segment_.arena();
    return shm::populate(arena.first(std::min<std::uint64_t>(bytes, arena.size()))).has_value();
  }

  // The orderly hand-shake; false if the daemon refuses.
  bool hello(std::uint64_t arena_bytes = 1 << 20, const char* job = "hostile") {
    auto hello = shm::make_packet<shm::HelloPacket>(shm::PacketKind::hello, 1);
    hello.abi_min = hello.abi_max = wire::kShmAbi;
    hello.arena_bytes = arena_bytes;
    std::snprintf(hello.job, sizeof(hello.job), "%s", job);
    if (!socket_.send(shm::packet_bytes(hello))) return false;
    auto packet = receive();
    shm::WelcomePacket welcome;
    if (!packet || !shm::read_packet(packet->bytes, welcome) || packet->fds.size() < 3)
      return false;
    auto mapped = shm::Segment::map(std::move(packet->fds[0]), welcome.segment_bytes);
    if (!mapped) return false;
    segment_ = std::move(*mapped);
    notify_ = std::move(packet->fds[1]);
    for (std::size_t i = 2; i < packet->fds.size(); ++i)
      eventfds_.push_back(std::move(packet->fds[i]));
    submissions_ = shm::RingProducer<shm::SubmitEntry>(segment_.submit_ring(0));
    completions_ = shm::RingConsumer<shm::CompletionEntry>(segment_.completion_ring(0));
    if (!take_pages(kPagesOfGoodEntries)) return false;
    // The lanes know a client by its first request.
    const auto mint = shm::make_packet<HeaderOnly>(shm::PacketKind::group_mint, 2);
    return socket_.send(shm::packet_bytes(mint)) && receive().has_value();
  }

  // A group of this client alone; 0 if that fails.
  std::uint64_t join_alone() {
    const auto minted =
        ask<shm::GroupMintedPacket>(shm::make_packet<HeaderOnly>(shm::PacketKind::group_mint, 2));
    if (!minted) return 0;
    auto join = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, 3);
    std::memcpy(join.id, minted->id, sizeof(join.id));
    join.size = 1;
    join.timeout_ms = 20'000;
    const auto joined = ask<shm::GroupJoinedPacket>(join);
    return joined ? joined->group : 0;
  }

  // A region that is mapped and open, none of whose pages are there; its number is 1. Nothing: the
  // daemon makes none.
  std::optional<shm::Segment> open_region(std::uint64_t bytes) {
    auto create = shm::make_packet<shm::RegionCreatePacket>(shm::PacketKind::region_create, 5);
    create.bytes = bytes;
    if (!socket_.send(shm::packet_bytes(create))) return std::nullopt;
    auto packet = receive();
    shm::RegionCreatedPacket created;
    if (!packet || !shm::read_packet(packet->bytes, created) || packet->fds.size() != 1) {
      return std::nullopt;
    }
    auto region = shm::Segment::map_region(std::move(packet->fds[0]), created.segment_bytes);
    if (!region) return std::nullopt;
    auto open = shm::make_packet<shm::RegionPacket>(shm::PacketKind::region_open, 6);
    open.region = created.region;
    if (created.region != 1 || !ask<shm::DonePacket>(open)) return std::nullopt;
    return std::move(*region);
  }

  // A small tensor of that group; its id.
  std::optional<std::uint64_t> declare(std::uint64_t group, const char* name = "tensor",
                                       bool client_blocks = false) {
    auto declare = shm::make_packet<shm::TensorDeclarePacket>(shm::PacketKind::tensor_declare, 4);
    declare.group = group;
    declare.count = 16;
    declare.client_blocks = client_blocks ? 1 : 0;
    std::snprintf(declare.name, sizeof(declare.name), "%s", name);
    if (!socket_.send(shm::packet_bytes(declare))) return std::nullopt;
    const auto packet = receive();
    shm::TensorDeclaredPacket declared;
    if (!packet || !shm::read_packet(packet->bytes, declared)) return std::nullopt;
    return declared.tensor;
  }

  // An all-reduce that is right in everything.
  static shm::SubmitEntry good_entry(std::uint64_t group, std::uint64_t sequence) {
    shm::SubmitEntry entry{};
    entry.ticket = sequence + 1;
    entry.kind = static_cast<std::uint16_t>(shm::OpKind::all_reduce);
    entry.group = group;
    entry.sequence = sequence;
    entry.count = 16;
    entry.output_offset = 4096;
    const float one = 1;
    std::memcpy(&entry.prescale_bits, &one, sizeof(one));
    std::memcpy(&entry.state_scale_bits, &one, sizeof(one));
    return entry;
  }

  bool submit(const shm::SubmitEntry& entry) {
    const bool taken = submissions_.try_push(entry) == shm::RingResult::ok;
    shm::wake_lane(segment_.lane_rings(0), eventfds_[0].get());
    return taken;
  }
  // All of them or, where there is no room, none; the lane sees them at once.
  bool submit_at_once(std::span<const shm::SubmitEntry> entries) {
    if (!submissions_.has_room(entries.size())) return false;
    for (const shm::SubmitEntry& entry : entries) submissions_.write(entry);
    submissions_.publish();
    wake();
    return true;
  }
  void wake() { shm::wake_lane(segment_.lane_rings(0), eventfds_[0].get()); }

  std::optional<shm::CompletionEntry> completion(std::chrono::milliseconds patience = kPatience) {
    shm::CompletionEntry entry;
    const bool got =
        eventually([&] { return completions_.try_pop(entry) == shm::RingResult::ok; }, patience);
    return got ? std::optional(entry) : std::nullopt;
  }

  void forget_completions() {
    shm::CompletionEntry entry;
    while (completions_.try_pop(entry) == shm::RingResult::ok) {
    }
  }

  // Whether the lane has taken every entry from the ring.
  bool all_taken() {
    shm::RingIndex& index = segment_.lane_rings(0).submit;
    return std::atomic_ref(index.head).load() == std::atomic_ref(index.tail).load();
  }

  // Whether the daemon has closed the connection.
  bool is_thrown_out() {
    return eventually([&] {
      auto packet = socket_.receive();
      return !packet && packet.error().code != Errc::would_block;
    });
  }

  shm::Segment& segment() { return segment_; }
  int notify_fd() const { return notify_.get(); }

 private:
  static constexpr std::uint64_t kPagesOfGoodEntries = 256 << 10;

  shm::PacketSocket socket_;
  shm::Segment segment_;
  Fd notify_;
  std::vector<Fd> eventfds_;
  shm::RingProducer<shm::SubmitEntry> submissions_;
  shm::RingConsumer<shm::CompletionEntry> completions_;
};

}  // namespace tern::e2e
