// Sends and recvs through libtern and real daemons: one to three nodes, several lanes, from and to
// memory anywhere, and what a rank is told when its other side does not come, does not fit or dies.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/e2e/cluster.h"

namespace tern::e2e {
namespace {

using Words = std::vector<std::uint32_t>;

struct PassLayout {
  const char* name;
  std::vector<int> ranks_per_node;
  std::vector<std::vector<std::string>> options;  // of each node
};

// The words that rank `source` sends to another as its n-th with a tag.
Words words_of(std::uint64_t key, std::size_t count) {
  Words words(count);
  std::uint32_t next = static_cast<std::uint32_t>(key * 2654435761u + 1);
  for (std::uint32_t& word : words) word = next = next * 1664525u + 1013904223u;
  return words;
}

std::uint64_t key_of(std::int32_t source, std::int32_t destination, std::uint32_t round) {
  return (static_cast<std::uint64_t>(source) * 64 + static_cast<std::uint64_t>(destination)) *
             1000 +
         round;
}

// One rank, a client of its own.
class PassRank {
 public:
  PassRank(const DaemonProcess& daemon, std::int32_t rank) : rank_(rank) {
    tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
    const std::string socket = daemon.socket();
    options.socket_path = socket.c_str();
    options.arena_bytes = 64 << 20;
    client_.emplace(options);
  }
  tern_group_id mint() { return client_->mint(); }
  void join(const tern_group_id& id, std::int32_t size, std::int64_t op_timeout_ms) {
    tern_join_options options = TERN_JOIN_OPTIONS_INIT;
    options.rank = rank_;
    options.size = size;
    options.op_timeout_ms = op_timeout_ms;
    group_.emplace(client_->join(id, options));
    size_ = size;
  }
  tern::Group& group() { return *group_; }
  std::int32_t rank() const { return rank_; }

  // To and from every rank, itself too, all in flight at once and in an order of its own. Empty, or
  // what is wrong.
  std::string exchange(std::uint32_t round, std::size_t count) {
    std::vector<Words> out, in;
    std::vector<tern_received> received(static_cast<std::size_t>(size_), TERN_RECEIVED_INIT);
    for (std::int32_t peer = 0; peer < size_; ++peer) {
      out.push_back(words_of(key_of(rank_, peer, round), count));
      in.emplace_back(count + 3, 0xabcdef01u);
    }
    std::vector<std::int32_t> order;
    order.reserve(2 * received.size());
    for (std::int32_t i = 0; i < 2 * size_; ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(),
                 std::mt19937(round * 97 + static_cast<unsigned>(rank_)));
    std::vector<tern::Ticket> tickets;
    for (const std::int32_t one : order) {
      const std::int32_t peer = one / 2;
      const auto index = static_cast<std::size_t>(peer);
      if (one % 2 == 0) {
        tickets.push_back(group_->send(std::span<const std::uint32_t>(out[index]), peer, round));
      } else {
        tickets.push_back(group_->recv(std::span(in[index]), peer, round, &received[index]));
      }
    }
    for (tern::Ticket& ticket : tickets) ticket.wait();
    for (std::int32_t peer = 0; peer < size_; ++peer) {
      const auto index = static_cast<std::size_t>(peer);
      Words expected = words_of(key_of(peer, rank_, round), count);
      expected.resize(count + 3, 0xabcdef01u);
      if (in[index] != expected) return "other words from rank " + std::to_string(peer);
      if (received[index].source != peer || received[index].count != count) {
        return "told of " + std::to_string(received[index].count) + " words of rank " +
               std::to_string(received[index].source);
      }
    }
    return "";
  }

 private:
  std::int32_t rank_;
  std::int32_t size_ = 1;
  std::optional<tern::Client> client_;
  std::optional<tern::Group> group_;
};

class PassRanks {
 public:
  PassRanks(Cluster& cluster, const std::vector<int>& ranks_per_node,
            std::int64_t op_timeout_ms = 0) {
    std::int32_t rank = 0;
    for (std::size_t node = 0; node < ranks_per_node.size(); ++node) {
      for (int i = 0; i < ranks_per_node[node]; ++i) {
        ranks_.push_back(std::make_unique<PassRank>(cluster[node], rank++));
      }
    }
    const tern_group_id id = ranks_.front()->mint();
    for_all([&](PassRank& one) {
      one.join(id, static_cast<std::int32_t>(ranks_.size()), op_timeout_ms);
    });
  }
  PassRank& operator[](std::size_t rank) { return *ranks_[rank]; }

  template <typename Use>
  void for_all(Use use) {
    std::vector<std::thread> threads;
    for (auto& rank : ranks_) {
      threads.emplace_back([&use, &rank] {
        try {
          use(*rank);
        } catch (const tern::Failure& failure) {
          ADD_FAILURE() << "rank " << rank->rank() << ": " << failure.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<PassRank>> ranks_;
};

// How a ticket has failed; empty: it has not.
std::string failure_of(tern::Ticket& ticket, tern_status expected) {
  try {
    ticket.wait();
  } catch (const tern::Failure& failure) {
    EXPECT_EQ(failure.status(), expected) << failure.what();
    return failure.what();
  }
  return "";
}

class PointToPointLayouts : public testing::TestWithParam<PassLayout> {};

TEST_P(PointToPointLayouts, EveryRankExchangesWithEveryRank) {
  const PassLayout& layout = GetParam();
  Cluster cluster(static_cast<int>(layout.ranks_per_node.size()), {"--chunk-bytes", "16KiB"},
                  layout.options);
  ASSERT_TRUE(cluster.running());
  PassRanks ranks(cluster, layout.ranks_per_node);
  std::uint32_t round = 0;
  for (const std::size_t count : {0u, 1u, 1000u, 16384u, 16385u, 100'003u}) {
    for (int i = 0; i < 2; ++i, ++round) {
      ranks.for_all([&](PassRank& rank) {
        EXPECT_EQ(rank.exchange(round, count), "") << "rank " << rank.rank() << ", " << count;
      });
    }
  }
}

const std::vector<PassLayout> kPassLayouts = {
    {"OneNode", {3}, {}},
    {"TwoNodesOfUnequalLanes", {1, 2}, {{"--lanes", "3"}, {"--lanes", "2"}}},
    {"ThreeNodes", {2, 1, 1}, {{"--lanes", "2"}, {"--lanes", "2"}, {"--lanes", "2"}}},
};
INSTANTIATE_TEST_SUITE_P(Layouts, PointToPointLayouts, testing::ValuesIn(kPassLayouts),
                         [](const auto& one) { return one.param.name; });

TEST(PointToPoint, ARankIsToldWhyItsOtherSideDidNotTakeIt) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  PassRanks ranks(cluster, {1, 1}, 1500);
  const Words words(50'000, 7);
  Words room(49'999);
  std::vector<float> floats(50'000);
  tern::Ticket large = ranks[0].group().send(std::span<const std::uint32_t>(words), 1, 3);
  tern::Ticket small = ranks[1].group().recv(std::span(room), 0, 3);
  const std::string sizes =
      "rank 0 sends 50000 elements to rank 1 with tag 3, which has room for 49999";
  EXPECT_NE(failure_of(large, TERN_ERR_MISMATCH).find(sizes), std::string::npos);
  EXPECT_NE(failure_of(small, TERN_ERR_MISMATCH).find(sizes), std::string::npos);
  tern::Ticket integers = ranks[0].group().send(std::span<const std::uint32_t>(words), 1, 3);
  tern::Ticket other = ranks[1].group().recv(std::span(floats), TERN_ANY_SOURCE, 3);
  const std::string types = "rank 0 sends u32 to rank 1 with tag 3, which receives f32";
  EXPECT_NE(failure_of(integers, TERN_ERR_MISMATCH).find(types), std::string::npos);
  EXPECT_NE(failure_of(other, TERN_ERR_MISMATCH).find(types), std::string::npos);
  tern::Ticket lonely = ranks[0].group().send(std::span<const std::uint32_t>(words), 1, 7);
  tern::Ticket in_vain = ranks[0].group().recv(std::span(room), 1, 8);
  EXPECT_NE(failure_of(lonely, TERN_ERR_OP_TIMEOUT)
                .find("after 1500 ms rank 1 has no recv from rank 0 with tag 7"),
            std::string::npos);
  EXPECT_NE(failure_of(in_vain, TERN_ERR_OP_TIMEOUT)
                .find("after 1500 ms rank 1 has not sent to rank 0 with tag 8"),
            std::string::npos);
  ranks.for_all([](PassRank& rank) { EXPECT_EQ(rank.exchange(1, 1000), ""); });
}

TEST(PointToPoint, TernctlShowsWhomASendWaitsFor) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  PassRanks ranks(cluster, {1, 1});
  Words words(50'000, 7);
  tern::Ticket send = ranks[0].group().send(std::span<const std::uint32_t>(words), 1, 7);
  tern::Ticket any = ranks[0].group().recv(std::span(words), TERN_ANY_SOURCE, 8);
  const auto shows = [&](const std::string& text) {
    return eventually(
        [&] { return cluster[0].ternctl({"groups"}).find(text) != std::string::npos; });
  };
  EXPECT_TRUE(shows("send: waits for rank 1, tag 7, for")) << cluster[0].ternctl({"groups"});
  EXPECT_TRUE(shows("recv: waits for any rank, tag 8, for")) << cluster[0].ternctl({"groups"});
  send.cancel();
  any.cancel();
  EXPECT_NE(failure_of(send, TERN_ERR_CANCELLED), "");
  EXPECT_NE(failure_of(any, TERN_ERR_CANCELLED), "");
}

TEST(PointToPoint, WhatWaitsForADaemonThatDiesEnds) {
  Cluster cluster(3);
  ASSERT_TRUE(cluster.running());
  PassRanks ranks(cluster, {1, 1, 1});
  Words words(500'000, 7), room(500'000);
  tern::Ticket send = ranks[0].group().send(std::span<const std::uint32_t>(words), 2, 7);
  tern::Ticket recv = ranks[1].group().recv(std::span(room), 2, 7);
  cluster[2].process().kill();
  EXPECT_NE(failure_of(send, TERN_ERR_PEER_LOST).find("send to rank 2, tag 7: "),
            std::string::npos);
  EXPECT_NE(failure_of(recv, TERN_ERR_PEER_LOST).find("recv from rank 2, tag 7: "),
            std::string::npos);
}

#ifdef TERN_HALO_EXCHANGE
// Two rows of three tiles, on three nodes: the middle ones have three neighbours.
TEST(PointToPoint, TilesOfAPlateAreThoseOfTheWholePlate) {
  Cluster cluster(3);
  ASSERT_TRUE(cluster.running());
  std::vector<Process> ranks;
  for (int rank = 0; rank < 6; ++rank) {
    const DaemonProcess& daemon = cluster[static_cast<std::size_t>(rank / 2)];
    ranks.emplace_back(
        "/usr/bin/env",
        std::vector<std::string>{"TERN_SOCKET=" + daemon.socket(), TERN_HALO_EXCHANGE,
                                 cluster.folder() + "/id", std::to_string(rank), "6", "20"},
        daemon.folder() + "/ranks.log");
  }
  for (std::size_t rank = 0; rank < 6; ++rank) {
    const auto said = ranks[rank].read_line();
    ASSERT_TRUE(said.has_value()) << tail_of(cluster[rank / 2].folder() + "/ranks.log");
    EXPECT_NE(said->find("of 2x3 after 20 steps is that of the whole plate"), std::string::npos)
        << *said;
    const auto exit = ranks[rank].wait_exit();
    EXPECT_TRUE(exit && exit->status == 0);
  }
}
#endif

#ifdef TERN_PIPELINE
TEST(PointToPoint, PartsComeBackThroughThePipeline) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  std::vector<Process> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const DaemonProcess& daemon = cluster[static_cast<std::size_t>(rank / 2)];
    ranks.emplace_back(
        "/usr/bin/env",
        std::vector<std::string>{"TERN_SOCKET=" + daemon.socket(), TERN_PIPELINE,
                                 cluster.folder() + "/id", std::to_string(rank), "4"},
        daemon.folder() + "/ranks.log");
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto said = ranks[rank].read_line();
    ASSERT_TRUE(said.has_value()) << tail_of(cluster[rank / 2].folder() + "/ranks.log");
    EXPECT_NE(said->find("16 parts through this stage"), std::string::npos) << *said;
    const auto exit = ranks[rank].wait_exit();
    EXPECT_TRUE(exit && exit->status == 0);
  }
}
#endif

}  // namespace
}  // namespace tern::e2e
