// Sends and recvs through whole daemons: what meets what, and what each side is told.

#include "point_to_point.h"

namespace tern::sim {
namespace {

using testing::Test;

DaemonShape of_lanes(std::uint32_t lanes) {
  DaemonShape shape;
  shape.lanes = lanes;
  return shape;
}

TEST(PointToPoint, EverySizeArrivesBetweenNodesAndWithinOne) {
  // 1 KiB is eager; a piece is 16 KiB.
  for (const std::uint64_t count : {0u, 1u, 1000u, 1024u, 1025u, 16384u, 16385u, 100000u}) {
    for (const bool recv_first : {false, true}) {
      Cluster cluster({2, 1}, of_lanes(2));
      cluster.join();
      for (const auto& [from, to] : {std::pair{0u, 2u}, {2u, 1u}, {0u, 1u}, {1u, 1u}}) {
        SCOPED_TRACE(testing::Message() << count << " from " << from << " to " << to);
        Passed in;
        if (recv_first) in = recv(cluster, to, {from, 7, count});
        const Passed out = send(cluster, from, {to, 7, count}, from * 10 + to);
        if (!recv_first) {
          cluster.world.run_for(3'000'000);
          EXPECT_FALSE(out.done()) << "nobody has received it";
          in = recv(cluster, to, {from, 7, count});
        }
        await(cluster, in);
        await(cluster, out);
        EXPECT_EQ(out.result().status, Errc::ok) << out.result().detail;
        expect_bytes(in, from * 10 + to, count);
        EXPECT_EQ(in.result().source, from);
        EXPECT_EQ(in.result().elements, count);
      }
      cluster.leave_all();
    }
  }
}

TEST(PointToPoint, ARingOfSendsBeforeRecvsEnds) {
  Cluster cluster({1, 1, 1}, of_lanes(3));
  cluster.join();
  std::vector<Passed> all;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    all.push_back(send(cluster, rank, {(rank + 1) % 3, 1, 50000}, rank));
  }
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    all.push_back(recv(cluster, rank, {(rank + 2) % 3, 1, 50000}));
  }
  for (const Passed& one : all) await(cluster, one);
  for (std::uint32_t rank = 0; rank < 3; ++rank) expect_bytes(all[3 + rank], (rank + 2) % 3, 50000);
  cluster.leave_all();
}

TEST(PointToPoint, OneTagIsInOrderWhateverTheSizes) {
  Cluster cluster({1, 1}, of_lanes(2));
  cluster.join();
  std::vector<Passed> sends, recvs;
  const std::uint64_t counts[] = {40000, 3, 900, 20000, 0, 12};
  for (std::uint64_t i = 0; i < 6; ++i) sends.push_back(send(cluster, 0, {1, 5, counts[i]}, i));
  const Passed other = send(cluster, 0, {1, 6, 10}, 99);
  const Passed other_in = recv(cluster, 1, {0, 6, 10});
  await(cluster, other_in);
  await(cluster, other);
  expect_bytes(other_in, 99, 10);
  for (std::uint64_t i = 0; i < 6; ++i) recvs.push_back(recv(cluster, 1, {0, 5, counts[i]}));
  for (std::uint64_t i = 0; i < 6; ++i) {
    await(cluster, recvs[i]);
    await(cluster, sends[i]);
    expect_bytes(recvs[i], i, counts[i]);
  }
  cluster.leave_all();
}

TEST(PointToPoint, ARecvFromAnySourceTakesTheFirstAndSaysWhose) {
  Cluster cluster({1, 1, 2});
  cluster.join();
  const PassSpec any{shm::kAnySource, 4, 64};
  const Passed first = recv(cluster, 0, any);
  const Passed out = send(cluster, 2, {0, 4, 64}, 2);
  await(cluster, first);
  EXPECT_EQ(first.result().source, 2u);
  expect_bytes(first, 2, 64);
  const Passed second = send(cluster, 3, {0, 4, 30}, 3);
  cluster.world.run_for(2'000'000);
  const Passed third = send(cluster, 1, {0, 4, 64}, 1);
  cluster.world.run_for(2'000'000);
  const Passed from_1 = recv(cluster, 0, {1, 4, 64});
  await(cluster, from_1);
  expect_bytes(from_1, 1, 64);
  const Passed rest = recv(cluster, 0, any);
  await(cluster, rest);
  EXPECT_EQ(rest.result().source, 3u);
  EXPECT_EQ(rest.result().elements, 30u) << "fewer than there is room for";
  expect_bytes(rest, 3, 30);
  for (const Passed& one : {out, second, third}) await(cluster, one);
  cluster.leave_all();
}

TEST(PointToPoint, WhatDoesNotFitFailsOnBothSidesAndTheNextIsWell) {
  Cluster cluster({2, 1});
  cluster.join();
  for (const auto& [from, to] : {std::pair{0u, 2u}, {0u, 1u}}) {
    for (const std::uint64_t count : {100u, 50000u}) {
      const Passed out = send(cluster, from, {to, 9, count});
      const Passed in = recv(cluster, to, {from, 9, count - 1});
      const Passed typed = send(cluster, from, {to, 9, count / 4, DType::f32});
      const Passed other = recv(cluster, to, {from, 9, count, DType::bf16});
      const Passed good = send(cluster, from, {to, 9, count}, 5);
      const Passed good_in = recv(cluster, to, {from, 9, count});
      for (const Passed& one : {out, in, typed, other, good, good_in}) await(cluster, one);
      const std::string parties =
          "rank " + std::to_string(from) + " sends %s to rank " + std::to_string(to);
      const auto text = [&](const std::string& what, const std::string& then) {
        std::string made = parties;
        return made.replace(made.find("%s"), 2, what) + " with tag 9, which " + then;
      };
      const std::string sizes =
          text(std::to_string(count) + " elements", "has room for " + std::to_string(count - 1));
      expect_failed(out, Errc::mismatch, sizes);
      expect_failed(in, Errc::mismatch, sizes);
      expect_failed(typed, Errc::mismatch, text("f32", "receives bf16"));
      expect_failed(other, Errc::mismatch, text("f32", "receives bf16"));
      EXPECT_EQ(good.result().status, Errc::ok);
      expect_bytes(good_in, 5, count);
    }
  }
  cluster.leave_all();
}

TEST(PointToPoint, OpTimeoutNamesWhoDidNotCome) {
  Cluster cluster({1, 2});
  JoinOptions options;
  options.op_timeout_ms = 2000;
  cluster.join(options);
  const Passed small = send(cluster, 0, {1, 7, 10});
  const Passed large = send(cluster, 0, {1, 7, 100000});
  const Passed within = send(cluster, 2, {1, 8, 10});
  const Passed in = recv(cluster, 0, {2, 3, 10});
  const Passed any = recv(cluster, 0, {shm::kAnySource, 3, 10});
  for (const Passed& one : {small, large, within, in, any}) await(cluster, one);
  const std::string waited = "after 2000 ms rank 1 has no recv from rank ";
  expect_failed(small, Errc::op_timeout, waited + "0 with tag 7");
  expect_failed(large, Errc::op_timeout, waited + "0 with tag 7");
  expect_failed(within, Errc::op_timeout, waited + "2 with tag 8");
  expect_failed(in, Errc::op_timeout, "after 2000 ms rank 2 has not sent to rank 0 with tag 3");
  expect_failed(any, Errc::op_timeout, "after 2000 ms no rank has sent to rank 0 with tag 3");
  // What has given up meets nobody any more.
  const Passed late = recv(cluster, 1, {0, 7, 100000});
  const Passed good = send(cluster, 0, {1, 7, 20}, 4);
  await(cluster, late);
  await(cluster, good);
  EXPECT_EQ(late.result().elements, 20u);
  expect_bytes(late, 4, 20);
  cluster.leave_all();
}

TEST(PointToPoint, ACancelOfWhatHasMetNobodyEndsItHereAlone) {
  Cluster cluster({2, 1});
  cluster.join();
  const Passed out = send(cluster, 0, {2, 1, 100000});
  const Passed small = send(cluster, 0, {2, 1, 10});
  const Passed within = send(cluster, 0, {1, 1, 10});
  const Passed in = recv(cluster, 2, {1, 5, 10});
  cluster.world.run_for(2'000'000);
  for (const Passed& one : {out, small, within, in}) {
    one.client->cancel(one.ticket);
    await(cluster, one);
    EXPECT_EQ(one.result().status, Errc::cancelled);
  }
  EXPECT_EQ(in.result().detail, "cancelled by rank 2");
  const Passed next = send(cluster, 0, {2, 1, 30}, 3);
  const Passed next_in = recv(cluster, 2, {0, 1, 30});
  const Passed other = send(cluster, 1, {2, 5, 10}, 6);
  const Passed other_in = recv(cluster, 2, {1, 5, 10});
  for (const Passed& one : {next, next_in, other, other_in}) await(cluster, one);
  expect_bytes(next_in, 3, 30);
  expect_bytes(other_in, 6, 10);
  cluster.leave_all();
}

TEST(PointToPoint, NobodyElseHearsOfItAndItIsNoOpOfTheGroup) {
  DaemonShape shape;
  shape.max_ops = 2;
  Cluster cluster({1, 1, 1}, shape);
  cluster.join();
  std::vector<Passed> all;
  std::size_t offers = 0;
  cluster.world.tap = [&](const net::OutgoingFrame& frame) {
    const wire::FrameHeader header = wire::parse_frame_header(frame.head).header;
    if (static_cast<wire::FrameKind>(header.kind) < wire::FrameKind::send_offer) return;
    EXPECT_NE(header.source_node, 2) << "it has no part in it";
    EXPECT_EQ(header.tensor, 1u) << "from rank 0 to rank 1";
    if (static_cast<wire::FrameKind>(header.kind) == wire::FrameKind::send_offer) ++offers;
  };
  for (std::uint64_t i = 0; i < 60; ++i) all.push_back(send(cluster, 0, {1, 2, 700}, i));
  const auto pending = cluster.submit(all_reduce(DType::f32, 500), inputs_of(DType::f32, 500, 3));
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::ok);
  for (std::uint64_t i = 0; i < 60; ++i) all.push_back(recv(cluster, 1, {0, 2, 700}));
  for (const Passed& one : all) await(cluster, one);
  for (std::uint64_t i = 0; i < 60; ++i) expect_bytes(all[60 + i], i, 700);
  EXPECT_EQ(offers, 60u) << "to one node each";
  cluster.world.tap = nullptr;
  cluster.leave_all();
}

TEST(PointToPoint, ARankHasSoManyInFlightAndNoMore) {
  Cluster cluster({1, 1});
  cluster.join();
  std::vector<Passed> all;
  for (std::uint32_t i = 0; i < plan::kMaxPassing; ++i) {
    all.push_back(send(cluster, 0, {1, i, 8}, i));
    if (i % 64 == 63) cluster.world.run_for(1'000'000);
  }
  const Passed one_more = send(cluster, 0, {1, 1000, 8});
  await(cluster, one_more);
  expect_failed(one_more, Errc::would_block, "more sends and recvs in flight than a rank may have");
  for (std::uint32_t i = 0; i < plan::kMaxPassing; ++i) {
    const Passed in = recv(cluster, 1, {0, i, 8});
    await(cluster, in);
    expect_bytes(in, i, 8);
  }
  for (const Passed& one : all) await(cluster, one);
  cluster.leave_all();
}

TEST(PointToPoint, ARankThatLeavesEndsWhatWaitsForItAndNothingElse) {
  Cluster cluster({1, 2, 2}, of_lanes(2));
  cluster.join();
  const Passed large = send(cluster, 0, {3, 1, 100000});
  const Passed small = send(cluster, 1, {3, 1, 10});
  const Passed within = send(cluster, 4, {3, 1, 10});
  const Passed in = recv(cluster, 2, {3, 4, 10});
  const Passed own = send(cluster, 3, {0, 4, 10});
  const Passed other = send(cluster, 1, {2, 1, 10}, 8);
  cluster.world.run_for(2'000'000);
  cluster.ranks[3]->leave();
  cluster.world.run_for(20'000'000);
  const Passed late = send(cluster, 0, {3, 2, 10});
  const Passed late_in = recv(cluster, 0, {3, 2, 10});
  for (const Passed& one : {large, small, within, in, own, late, late_in}) await(cluster, one);
  const std::string why = "rank 3 has left the group";
  for (const Passed& one : {large, small, within, in, own, late, late_in}) {
    EXPECT_EQ(one.result().status, Errc::group_left);
    EXPECT_TRUE(contains(one.result().detail, why)) << one.result().detail;
  }
  expect_failed(in, Errc::group_left, "recv from rank 3, tag 4: " + why);
  expect_failed(within, Errc::group_left, "send to rank 3, tag 1: " + why);
  const Passed other_in = recv(cluster, 2, {1, 1, 10});
  await(cluster, other_in);
  await(cluster, other);
  expect_bytes(other_in, 8, 10);
  cluster.leave_all();
}

TEST(PointToPoint, UnmatchedOnesEndWhenARankDies) {
  Cluster cluster({1, 2}, of_lanes(2));
  cluster.join();
  const Passed out = send(cluster, 0, {2, 1, 100000});
  const Passed within = send(cluster, 1, {2, 1, 10});
  const Passed in = recv(cluster, 0, {1, 4, 10});
  const Passed own = recv(cluster, 2, {0, 5, 100000});
  const Passed moving = send(cluster, 0, {2, 5, 100000});
  cluster.world.run_for(100'000);
  Client* const dead = std::exchange(cluster.ranks[2], nullptr);
  cluster.world.close(*dead);
  for (const Passed& one : {out, within, in, moving}) {
    await(cluster, one);
    EXPECT_NE(one.result().status, Errc::op_timeout) << one.result().detail;
    // What had met its recv may have been faster.
    const bool is_through = one.ticket == moving.ticket && one.result().status == Errc::ok;
    EXPECT_TRUE(is_through || contains(one.result().detail, "rank 2")) << one.result().detail;
  }
  EXPECT_EQ(in.result().status, Errc::rank_lost) << "it has nothing to do with rank 2";
  (void)own;
}

TEST(PointToPoint, UnmatchedOnesEndWhenADaemonDies) {
  Cluster cluster({1, 2, 1});
  cluster.join();
  const Passed out = send(cluster, 0, {3, 1, 100000});
  const Passed small = send(cluster, 1, {2, 1, 10});
  const Passed in = recv(cluster, 2, {shm::kAnySource, 4, 10});
  cluster.world.run_for(2'000'000);
  cluster.world.kill(2);
  for (const Passed& one : {out, small, in}) {
    await(cluster, one);
    EXPECT_EQ(one.result().status, Errc::peer_lost) << one.result().detail;
  }
  EXPECT_TRUE(contains(small.result().detail, "send to rank 2, tag 1: ")) << small.result().detail;
  EXPECT_TRUE(contains(in.result().detail, "recv from any rank, tag 4: ")) << in.result().detail;
}

TEST(PointToPoint, BadEntriesAreRefusedAndTheRestGoesOn) {
  Cluster cluster({1, 1}, of_lanes(2));
  cluster.join();
  Client& client = *cluster.ranks[0];
  const auto refused = [&](const OpRequest& request, const std::string& text) {
    const std::uint64_t ticket = client.submit(request);
    ASSERT_TRUE(cluster.world.run_until([&] { return client.done(ticket); }));
    EXPECT_EQ(client.result(ticket).status, Errc::invalid_argument);
    EXPECT_EQ(client.result(ticket).detail, text);
  };
  refused(pass_request(shm::OpKind::send, {2, 0, 1}), "the peer of a send must be 0..size-1");
  refused(pass_request(shm::OpKind::send, {shm::kAnySource, 0, 1}),
          "the peer of a send must be 0..size-1");
  refused(pass_request(shm::OpKind::recv, {2, 0, 1}),
          "the peer of a recv must be 0..size-1, or any source");
  OpRequest request = pass_request(shm::OpKind::send, {1, 0, 1});
  request.prescale = 2.0f;
  refused(request, "prescale is for reductions only");
  request.prescale = 1.0f;
  refused(pass_request(shm::OpKind::send, {1, 0, 9 << 20}),
          "the tensor is not inside the client's arena");
  const Passed out = send(cluster, 0, {1, 0, 10}, 1);
  const Passed in = recv(cluster, 1, {0, 0, 10});
  await(cluster, in);
  await(cluster, out);
  expect_bytes(in, 1, 10);
  cluster.leave_all();
}

}  // namespace
}  // namespace tern::sim
