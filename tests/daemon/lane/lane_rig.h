#pragma once

// What a part of the lane needs around it: ops that ranks submit, clients with rings of their own,
// and two lanes with links between them whose carrier says what a test wants.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "collective/group_ops.h"
#include "daemon/lane/lane_group.h"
#include "daemon/lane/lane_links.h"
#include "daemon/lane/lane_resources.h"
#include "net/loopback.h"
#include "shm/wakeup.h"

namespace tern::daemon::lane_test {

inline constexpr std::uint64_t kSecond = 1'000'000'000;
inline constexpr collective::Room kRoom{8, 64, 8, 8};

// An all_reduce of f32, summed.
inline wire::AnnounceBody all_reduce_of(std::uint64_t count) {
  wire::AnnounceBody body{};
  body.count = count;
  body.kind = static_cast<std::uint16_t>(shm::OpKind::all_reduce);
  return body;
}

inline collective::OpId submit(collective::GroupOps& ops, const collective::OpKey& key,
                               const wire::AnnounceBody& body, std::uint32_t local_rank = 0) {
  collective::OpId op = collective::kNoSlot;
  EXPECT_EQ(ops.on_submit({local_rank, key, body, 0, 1}, op),
            collective::GroupOps::SubmitResult::accepted);
  return op;
}

// Does what comes next until an action of this kind comes out, which is not done.
inline collective::Action run_until(collective::GroupOps& ops, collective::ActionKind kind) {
  for (;;) {
    const collective::Action action = ops.next(kRoom);
    if (action.kind == kind || action.kind == collective::ActionKind::none) {
      EXPECT_EQ(action.kind, kind);
      return action;
    }
    ops.done(action);
  }
}

// Ends an op as if it had failed.
inline void end_op(collective::GroupOps& ops, collective::OpId op) {
  ops.fail(op, {Errc::cancelled, 0, "cancelled"});
  ops.release(run_until(ops, collective::ActionKind::complete).op);
}

// Of every client, as far as it has any.
inline void take_all(LaneClients& clients, EntrySink& sink) {
  for (std::size_t i = 0; i < clients.size(); ++i) {
    while (clients.take_entry(clients[i], sink)) {
    }
  }
}

// What has been reported and is of this kind; the rest is thrown away.
template <typename What>
std::vector<What> take_events(EventReports& reports) {
  std::vector<What> taken;
  for (Event event; reports.ring().pop(event);) {
    if (const What* what = std::get_if<What>(&event.what)) taken.push_back(*what);
  }
  return taken;
}

// ---- Links --------------------------------------------------------------------------------------

// Of the connections of a RatedTransport, in the order in which they were opened.
struct Carrier {
  net::DeliveryRate rate;
  std::optional<std::size_t> bound;  // the last
  std::size_t record_bytes = 0;
  int bounds = 0;
};

// Passes everything on, but for how fast it is and how much it may keep, which it leaves to the
// test.
class RatedTransport final : public net::Transport {
 public:
  explicit RatedTransport(net::Transport& inner) : inner_(inner) {}

  const char* name() const noexcept override { return "rated"; }
  std::unique_ptr<net::Connection> connect(const net::Endpoint& endpoint,
                                           net::ConnectionSink& sink) override {
    auto connection = std::make_unique<Rated>(carriers.emplace_back(), sink);
    connection->inner = inner_.connect(endpoint, *connection);
    return connection;
  }
  std::unique_ptr<net::Connection> adopt(std::unique_ptr<net::Incoming> incoming,
                                         net::ConnectionSink& sink) override {
    return inner_.adopt(std::move(incoming), sink);
  }
  int poll() override { return inner_.poll(); }
  Status remember_memory(const net::Memory& memory) override {
    remembered.push_back(memory.bytes);
    return {};
  }
  void forget_memory(const net::Memory& memory) override {
    std::erase_if(remembered, [&](const auto& one) { return one.data() == memory.bytes.data(); });
  }

  std::deque<Carrier> carriers;
  std::vector<std::span<const std::byte>> remembered;

 private:
  struct Rated final : net::Connection, net::ConnectionSink {
    Rated(Carrier& its_carrier, net::ConnectionSink& its_sink)
        : carrier(its_carrier), sink(its_sink) {}

    void send(const net::OutgoingFrame& frame) override { inner->send(frame); }
    std::size_t queued_bytes() const override { return inner->queued_bytes(); }
    std::uint64_t received_bytes() const override { return inner->received_bytes(); }
    net::DeliveryRate delivery_rate() const override { return carrier.rate; }
    void bound_queue(const net::QueueBound& bound) override {
      carrier.bound = bound.bytes;
      carrier.record_bytes = bound.record_bytes;
      ++carrier.bounds;
    }

    void on_open(net::Connection&) override { sink.on_open(*this); }
    bool on_header(net::Connection&, const wire::FrameHeader& header,
                   net::PayloadPlace& place) override {
      return sink.on_header(*this, header, place);
    }
    void on_frame(net::Connection&, const wire::FrameHeader& header, const net::PayloadPlace& place,
                  bool payload_valid) override {
      sink.on_frame(*this, header, place, payload_valid);
    }
    void on_closed(net::Connection&, Errc reason, const char* text) override {
      sink.on_closed(*this, reason, text);
    }

    Carrier& carrier;
    net::ConnectionSink& sink;
    std::unique_ptr<net::Connection> inner;
  };

  net::Transport& inner_;
};

// Throws every payload away.
class DeafSink final : public FrameSink {
 public:
  bool place_frame(LanePeer&, const wire::FrameHeader&, net::PayloadPlace&) override {
    return true;
  }
  bool take_frame(LanePeer&, const wire::FrameHeader&, const ReceivedPayload&,
                  bool& known) override {
    known = true;
    return true;
  }
  void abandon_frame(LanePeer&) override {}
  void on_link_lost(LanePeer&, Errc, const char*, bool) override {}
};

inline LaneSettings small_lane() {
  LaneSettings settings;
  settings.chunk_bytes = 4096;
  settings.receive_slabs = settings.send_slabs = settings.result_slabs = 4;
  return settings;
}

// A lane and what it stands on.
struct LaneSide {
  LaneSide(const Clock& clock, net::Transport& transport, wire::NodeId self)
      : resources(small_lane(), {clock, transport}), links(resources, transport, self, sink) {}

  LaneResources resources;
  DeafSink sink;
  LaneLinks links;
};

inline constexpr wire::NodeId kNear{1, 1}, kFar{2, 2};

// The near lane's links lead to the far one.
class TwoLanes : private net::AcceptorSink {
 public:
  // Over the link of this number. Its carrier is the next one of `transport`.
  LanePeer& open(std::uint64_t group) {
    LanePeer& peer = near.links.peer(kFar, group, kThere);
    pump();
    EXPECT_EQ(peer.link->state(), net::LinkState::open);
    return peer;
  }
  // The far end of a link.
  net::Link& far_end(const LanePeer& peer) { return *far.links.peer(kNear, peer.group, {}).link; }
  // Until all has been said, with the acks that wait for company.
  void pump() {
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds; ++round) {
      acceptor_.poll();
      transport.poll();
      far_wire_.poll();
      near.links.tick(clock.now_ns());
      far.links.tick(clock.now_ns());
      clock.advance_ns(100'000);
    }
  }
  // A frame of so many bytes, which the other side throws away. They stay as they are until they
  // are acknowledged.
  static void send(net::Link& link, std::size_t bytes) {
    static const std::vector<std::byte> kZeros(4 << 20);
    wire::FrameHeader header;
    header.kind = static_cast<std::uint8_t>(wire::FrameKind::contribution);
    link.send(header, {}, std::span(kZeros).first(bytes), 0);
  }

  static inline const net::Endpoint kHere{"here", 7000}, kThere{"there", 7000};

  ManualClock clock;

 private:
  net::LoopbackNetwork network_;
  net::LoopbackTransport near_wire_{network_, kHere}, far_wire_{network_, kThere};

 public:
  RatedTransport transport{near_wire_};
  LaneSide near{clock, transport, kNear};
  LaneSide far{clock, far_wire_, kFar};

 private:
  void on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody& hello) override {
    far.links.adopt({incoming.release(), hello});
  }
  void on_refused(const std::string&, Errc, const char* text) override { ADD_FAILURE() << text; }

  net::LoopbackAcceptor acceptor_{network_, clock, {kThere}, *this};
};

// ---- Groups -------------------------------------------------------------------------------------

// This node is the first of so many, with one rank on each.
inline GroupSetup group_of(std::uint32_t nodes, std::uint64_t number) {
  GroupSetup setup;
  setup.number = number;
  setup.token = 1000 + number;
  setup.link = number;
  setup.job = number;
  setup.size = nodes;
  setup.shape.chunk_bytes = 4096;
  setup.shape.eager_bytes = 0;
  setup.shape.max_ops_in_flight = 8;
  setup.shape.ranks.resize(nodes);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    setup.shape.ranks[node] = {node};
    setup.node_ids.push_back({node + 1, node + 1});
    setup.endpoints.push_back(node == 0 ? TwoLanes::kHere : TwoLanes::kThere);
  }
  setup.local_clients = {1};
  return setup;
}

// ---- Clients ------------------------------------------------------------------------------------

// What a connected process shares with a lane, and its own ends of that.
struct TestClient {
  explicit TestClient(std::uint64_t id, std::uint32_t lanes = 1) {
    memory.id = id;
    memory.segment = *shm::Segment::create(lanes, 1 << 16, 0);
    auto pair = *shm::make_notify_pair();
    memory.notify = std::move(pair.first);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      memory.eventfds.push_back(*shm::make_eventfd());
    }
    submissions = shm::RingProducer<shm::SubmitEntry>(memory.segment.submit_ring(lanes - 1));
    completions =
        shm::RingConsumer<shm::CompletionEntry>(memory.segment.completion_ring(lanes - 1));
  }
  void submit(std::uint64_t ticket) {
    shm::SubmitEntry entry{};
    entry.ticket = ticket;
    EXPECT_EQ(submissions.try_push(entry), shm::RingResult::ok);
  }
  std::optional<shm::CompletionEntry> next_completion() {
    shm::CompletionEntry entry;
    if (completions.try_pop(entry) != shm::RingResult::ok) return std::nullopt;
    return entry;
  }

  ClientMemory memory;
  // Of the last lane.
  shm::RingProducer<shm::SubmitEntry> submissions;
  shm::RingConsumer<shm::CompletionEntry> completions;
};

// The arena's first page lies in a file that ends before it: it is lost when somebody uses it.
inline void take_first_page(const TestClient& client) {
  const Fd file(::memfd_create("ended", MFD_CLOEXEC));
  ASSERT_NE(::mmap(client.memory.segment.arena().data(), 1, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED, file.get(), 0),
            MAP_FAILED);
}

}  // namespace tern::daemon::lane_test
