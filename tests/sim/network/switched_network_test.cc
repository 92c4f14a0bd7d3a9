// Whether the model is right: what is known of TCP over a switch comes out of it.

#include "switched_network.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tern::sim {
namespace {

constexpr std::uint64_t kGigabit = 125'000'000;
constexpr std::uint64_t kDelayNs = 20'000;
// What a stream of full segments takes of a line by its bytes.
constexpr double kWithHeaders =
    static_cast<double>(RenoSender::kSegmentBytes + Packet::kHeaderBytes) /
    static_cast<double>(RenoSender::kSegmentBytes);

// Connections of hosts to one that reads at once what arrives, on a network of its own.
class Flows {
 public:
  explicit Flows(const SwitchShape& shape, std::uint32_t count = 1) : network(shape) {
    const net::Endpoint sink{"sink", 1};
    network.listen(sink,
                   [](const std::shared_ptr<NetworkPipe>& pipe) { pipe->ends[1].wake = [] {}; });
    for (std::uint32_t i = 0; i < count; ++i) {
      pipes.push_back(network.connect({"source" + std::to_string(i), 1}, sink));
    }
    run([this] { return pipes.back()->state == NetworkPipe::State::open; });
    network.forget_counts();
  }

  void send(std::uint32_t flow, std::size_t bytes) {
    memory.emplace_back(bytes);
    pipes[flow]->ends[0].queue.push({{}, memory.back()});
    network.pump(*pipes[flow], 0);
  }
  std::uint64_t arrived(std::uint32_t flow) const {
    return pipes[flow]->ends[1].receiver.arrived();
  }
  // How long it takes.
  template <typename Condition>
  std::uint64_t run(Condition condition) {
    const std::uint64_t begin = network.now_ns();
    while (!condition() && network.next_ns() != ~std::uint64_t{0}) {
      network.run_until(network.next_ns());
      for (const auto& pipe : pipes) pipe->arriving(1).drop_to(pipe->ends[1].receiver.arrived());
    }
    EXPECT_TRUE(condition());
    return network.now_ns() - begin;
  }
  std::uint64_t run_until_arrived(std::uint32_t flow, std::uint64_t bytes) {
    return run([this, flow, bytes] { return arrived(flow) == bytes; });
  }

  SwitchedNetwork network;
  std::vector<std::shared_ptr<NetworkPipe>> pipes;
  std::deque<std::vector<std::byte>> memory;
};

double wire_ns(std::uint64_t bytes, std::uint64_t bytes_per_s) {
  return static_cast<double>(bytes) * kWithHeaders * 1e9 / static_cast<double>(bytes_per_s);
}

TEST(SwitchedNetwork, OneFlowFillsItsLineButForHeaders) {
  constexpr std::size_t kBytes = 40 << 20;
  Flows flows(SwitchShape{});
  flows.send(0, kBytes);
  const auto ns = static_cast<double>(flows.run_until_arrived(0, kBytes));
  EXPECT_GE(ns, wire_ns(kBytes, kGigabit));
  EXPECT_LE(ns, 1.01 * wire_ns(kBytes, kGigabit));
  const NetworkCounts counts = flows.network.counts();
  EXPECT_EQ(counts.dropped, 0u);
  EXPECT_EQ(counts.resent, 0u);
  // Few are not full.
  EXPECT_LE(counts.segments, 1.001 * kBytes / RenoSender::kSegmentBytes);
}

TEST(SwitchedNetwork, ASlowLineDownLosesWhatTheBufferCannotHold) {
  constexpr std::size_t kBytes = 20 << 20;
  Flows flows(SwitchShape{{kGigabit, kGigabit / 4, kDelayNs}, 64 << 10});
  flows.send(0, kBytes);
  const auto ns = static_cast<double>(flows.run_until_arrived(0, kBytes));
  EXPECT_GE(ns, wire_ns(kBytes, kGigabit / 4));
  const NetworkCounts counts = flows.network.counts();
  EXPECT_GT(counts.dropped, 0u);
  EXPECT_GE(counts.resent, counts.dropped);
  EXPECT_LE(counts.longest_port_bytes, 64u << 10);
}

TEST(SwitchedNetwork, FlowsIntoOnePortShareItAndLoseWhatItsQueueCannotHold) {
  constexpr std::size_t kBytes = 20 << 20;
  constexpr std::uint32_t kFlows = 4;
  Flows flows(SwitchShape{}, kFlows);
  for (std::uint32_t i = 0; i < kFlows; ++i) flows.send(i, kBytes);
  const auto all = [&flows] {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < kFlows; ++i) sum += flows.arrived(i);
    return sum;
  };
  const auto ns = static_cast<double>(flows.run([&] { return all() >= 2 * kBytes; }));
  for (std::uint32_t i = 0; i < kFlows; ++i) {
    EXPECT_GT(flows.arrived(i), kBytes / 4) << "flow " << i;
    EXPECT_LT(flows.arrived(i), kBytes) << "flow " << i;
  }
  EXPECT_LE(ns, 1.25 * wire_ns(2 * kBytes, kGigabit));
  const NetworkCounts counts = flows.network.counts();
  EXPECT_GT(counts.dropped, 0u);
  EXPECT_GE(counts.resent, 1u);
  EXPECT_GT(counts.longest_port_bytes, 200u << 10);
  EXPECT_LE(counts.longest_port_bytes, 256u << 10);
  flows.run([&] { return all() == kFlows * kBytes; });
}

TEST(SwitchedNetwork, PortsShareOneBuffer) {
  constexpr std::uint32_t kFlows = 4;
  SwitchShape shape;
  shape.buffer_bytes = 128 << 10;
  Flows flows(shape, kFlows);
  // A second port is filled by the same hosts.
  std::vector<std::shared_ptr<NetworkPipe>> others;
  const net::Endpoint other{"other sink", 1};
  flows.network.listen(other, [](const std::shared_ptr<NetworkPipe>&) {});
  for (std::uint32_t i = 0; i < kFlows; ++i) {
    others.push_back(flows.network.connect({"source" + std::to_string(i), 1}, other));
  }
  flows.run([&] { return others.back()->state == NetworkPipe::State::open; });
  flows.memory.emplace_back(10 << 20);
  for (std::uint32_t i = 0; i < kFlows; ++i) {
    flows.send(i, 10 << 20);
    others[i]->ends[0].queue.push({{}, flows.memory.front()});
    flows.network.pump(*others[i], 0);
  }
  for (std::uint32_t i = 0; i < kFlows; ++i) flows.run_until_arrived(i, 10 << 20);
  const NetworkCounts counts = flows.network.counts();
  EXPECT_LE(counts.most_buffer_bytes, 128u << 10);
  EXPECT_LT(counts.longest_port_bytes, 128u << 10);
  EXPECT_GT(counts.dropped, 0u);
}

// The n-th segment with bytes is lost, the first time that it is sent.
void lose(Flows& flows, std::uint64_t number) {
  flows.network.loses = [number, seen = std::uint64_t{0}](const Packet& packet) mutable {
    return packet.bytes > 0 && !packet.again && ++seen == number;
  };
}

TEST(SwitchedNetwork, ALostSegmentCostsAFastRetransmit) {
  constexpr std::size_t kBytes = 1000 * RenoSender::kSegmentBytes;
  Flows flows(SwitchShape{});
  lose(flows, 500);
  flows.send(0, kBytes);
  const auto ns = static_cast<double>(flows.run_until_arrived(0, kBytes));
  const NetworkCounts counts = flows.network.counts();
  EXPECT_EQ(counts.fast_retransmits, 1u);
  EXPECT_EQ(counts.timeouts, 0u);
  EXPECT_EQ(counts.resent, 1u);
  EXPECT_LE(ns, 2 * wire_ns(kBytes, kGigabit));
}

TEST(SwitchedNetwork, ALostTailCostsTheTimeout) {
  // The acknowledgement of those before it does not wait for company.
  constexpr std::size_t kBytes = 1001 * RenoSender::kSegmentBytes;
  std::uint64_t ns[2];
  for (const bool loses : {false, true}) {
    Flows flows(SwitchShape{});
    if (loses) lose(flows, 1001);
    flows.send(0, kBytes);
    ns[loses ? 1 : 0] = flows.run_until_arrived(0, kBytes);
    const NetworkCounts counts = flows.network.counts();
    EXPECT_EQ(counts.fast_retransmits, 0u);
    EXPECT_EQ(counts.timeouts, loses ? 1u : 0u);
    EXPECT_EQ(counts.resent, loses ? 1u : 0u);
  }
  EXPECT_GE(ns[1], ns[0] + RenoSender::kLeastTimeoutNs);
  EXPECT_LE(ns[1], ns[0] + RenoSender::kLeastTimeoutNs + 10'000'000);
}

TEST(SwitchedNetwork, ABoundHoldsWhatTheKernelTakes) {
  constexpr std::size_t kBytes = 10 << 20;
  constexpr net::QueueBound kBound{16 << 10, 16 << 10};
  Flows flows(SwitchShape{});
  NetworkEnd& end = flows.pipes[0]->ends[0];
  std::uint64_t most[2] = {};
  for (const bool is_bound : {false, true}) {
    if (is_bound) end.queue.bound(kBound);
    const std::uint64_t before = flows.arrived(0);
    flows.send(0, kBytes);
    std::uint64_t& held = most[is_bound ? 1 : 0];
    const auto ns = static_cast<double>(flows.run([&] {
      held = std::max(held, end.sender.held());
      return flows.arrived(0) == before + kBytes;
    }));
    EXPECT_LE(ns, 1.2 * wire_ns(kBytes, kGigabit));
  }
  EXPECT_GT(most[0], 64u << 10);
  EXPECT_LE(most[1], kBound.bytes + kBound.record_bytes);
}

TEST(SwitchedNetwork, AHostMayHaveASlowerCable) {
  constexpr std::size_t kBytes = 10 << 20;
  Flows flows(SwitchShape{}, 2);
  flows.network.set_cable("source1", {kGigabit / 10, kGigabit, kDelayNs});
  for (const std::uint32_t flow : {0u, 1u}) {
    const std::uint64_t rate = flow == 0 ? kGigabit : kGigabit / 10;
    flows.send(flow, kBytes);
    const auto ns = static_cast<double>(flows.run_until_arrived(flow, kBytes));
    EXPECT_GE(ns, wire_ns(kBytes, rate));
    EXPECT_LE(ns, 1.01 * wire_ns(kBytes, rate));
  }
}

TEST(SwitchedNetwork, OneRunIsOneRun) {
  std::vector<std::uint64_t> ns;
  std::vector<NetworkCounts> counts;
  for (int run = 0; run < 2; ++run) {
    Flows flows(SwitchShape{}, 5);
    for (std::uint32_t i = 0; i < 5; ++i) flows.send(i, (i + 1) << 20);
    ns.push_back(flows.run_until_arrived(4, 5 << 20));
    counts.push_back(flows.network.counts());
  }
  EXPECT_EQ(ns[0], ns[1]);
  EXPECT_GT(counts[0].dropped, 0u);
  EXPECT_TRUE(counts[0] == counts[1]);
}

}  // namespace
}  // namespace tern::sim
