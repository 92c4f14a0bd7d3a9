// What a peer can cost the other connections of a lane: their turns, and their lane's sleep.

#include <gtest/gtest.h>

#include "tests/rdma/two_ends.h"

namespace tern::rdma {
namespace turns_test {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::size_t kBody = 256 << 10;

// Looked at, as a link does, after the transport's turn and before the lane sleeps.
TEST(Turns, WhatIsSeenBetweenATurnAndSleepKeepsTheLaneAwake) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  const auto frame = net::sealed(net::block_header(1), net::pattern(kBody, 1));
  const auto rest = [&] {
    while (ends.step() > 0 || !ends.transport_a.prepare_sleep()) {
    }
  };
  rest();
  ends.clock.advance_ns(kSecond);  // the control connection is looked at, too
  ends.a->send({std::span(frame).first(wire::kFrameHeaderBytes),
                std::span(frame).subspan(wire::kFrameHeaderBytes)});
  ends.transport_a.poll();
  EXPECT_EQ(ends.a->queued_bytes(), 0u) << "all of it has completed since";
  EXPECT_FALSE(ends.transport_a.prepare_sleep());
  ends.transport_a.poll();
  rest();
  EXPECT_EQ(ends.sink_b.payloads.back(), net::pattern(kBody, 1));
}

// Neither who is gone nor who takes a little now and then holds up the lane with every connection.
TEST(Turns, WhoDidNotTakeTheLastFramesIsNotWaitedForAgain) {
  constexpr int kFrames = 100;  // more than fit into B's slots
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  const auto frame = net::sealed(net::block_header(1), net::pattern(kBody, 1));
  const auto looks_at_an_end = [&] {
    EXPECT_TRUE(ends.connect_until("rdma"));
    for (int i = 0; i < kFrames; ++i) {
      ends.a->send({std::span(frame).first(wire::kFrameHeaderBytes),
                    std::span(frame).subspan(wire::kFrameHeaderBytes)});
    }
    ends.transport_a.poll();
    const std::uint64_t before = fabric.calls.poll;
    ends.a.reset();
    return fabric.calls.poll - before;
  };
  EXPECT_GT(looks_at_an_end(), 0u);
  EXPECT_EQ(looks_at_an_end(), 0u);
  ends.clock.advance_ns(RdmaSettings{}.retry_ns);
  EXPECT_GT(looks_at_an_end(), 0u);
}

// Each offer is a queue pair with its memory.
TEST(Turns, OffersToWhoGivesThemUpOneAfterTheOtherWait) {
  mock::Fabric fabric;
  TwoEnds ends(fabric, [](RdmaSettings& settings) { settings.choice = Choice::never; });
  const auto connect_and_go = [&](int times) {
    const std::uint64_t before = fabric.calls.queue_pairs;
    for (int i = 0; i < times; ++i) {
      EXPECT_TRUE(ends.connect_saying_rdma());
      ends.transport_b.poll();
      EXPECT_TRUE(
          ends.until([&] { return ends.sink_b.closed == 1 || !TwoEnds::is_settling(ends.b); }));
    }
    return fabric.calls.queue_pairs - before;
  };
  const std::uint64_t made = connect_and_go(50);
  EXPECT_GT(made, 4u) << "a job that ends at once gives up some";
  EXPECT_LT(made, 30u);
  EXPECT_EQ(connect_and_go(5), 0u);
  ends.clock.advance_ns(RdmaSettings{}.retry_ns + kSecond);
  EXPECT_GT(connect_and_go(5), 0u);
}

}  // namespace
}  // namespace turns_test
}  // namespace tern::rdma
