// Batches: entries of many operations that a lane finds in the ring at once. Some ranks submit a
// list so and others one by one, with time between; what they get is the same. TERN_SIM_SEEDS: how
// many seeds, times ten.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "every_kind.h"
#include "point_to_point.h"
#include "tests/environment.h"

namespace tern::sim {
namespace {

enum class Death : std::uint8_t { none, client, daemon };

class BatchRun {
 public:
  BatchRun(std::uint64_t seed, Death death)
      : random_(seed), death_(death), cluster_(nodes(), shape(), seed) {}

  void run() {
    cluster_.join();
    draw();
    for (std::uint32_t rank = 0; rank < cluster_.size(); ++rank) {
      if (below(2) == 0) batchers_.push_back(rank);
    }
    submit();
    if (death_ != Death::none) {
      cluster_.world.run_for(below(2'000'000));
      kill();
    }
    look();
    if (testing::Test::HasFailure()) return;
    end();
  }

 private:
  // An operation of every rank, or a send of each rank to the next one.
  struct Listed {
    bool passes = false;
    KindCase kind;
    std::uint64_t bytes = 0;
    std::vector<SubmittedKind> submitted;
    std::vector<Passed> sent, received;
  };

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  std::vector<std::uint32_t> nodes() {
    auto ranks_of_node = draw_nodes(random_);
    if (death_ != Death::none && ranks_of_node.size() == 1) ranks_of_node.push_back(1);
    return ranks_of_node;
  }
  DaemonShape shape() {
    DaemonShape shape;
    shape.lanes = static_cast<std::uint32_t>(below(3) + 1);
    shape.max_ops = 16;
    return shape;
  }

  // As many collectives as a group may have in flight, and sends beside them.
  void draw() {
    for (int i = 0; i < 20; ++i) {
      Listed one;
      one.passes = i % 5 == 4;
      one.kind = draw_kind(random_, cluster_.size());
      // All of them fit in an arena.
      for (std::uint64_t& count : one.kind.counts) count %= 1'200;
      one.bytes = below(3) == 0 ? 30'000 : below(900);
      one.submitted.resize(cluster_.size());
      one.sent.resize(cluster_.size());
      one.received.resize(cluster_.size());
      list_.push_back(one);
    }
  }

  void submit_one(std::uint32_t rank, std::size_t index) {
    Listed& one = list_[index];
    if (!one.passes) {
      one.submitted[rank] = submit_on(*cluster_.ranks[rank], one.kind, rank);
      return;
    }
    const std::uint32_t ranks = cluster_.size();
    const auto tag = static_cast<std::uint32_t>(index);
    one.sent[rank] = send(cluster_, rank, {(rank + 1) % ranks, tag, one.bytes}, index * 100 + rank);
    one.received[rank] = recv(cluster_, rank, {(rank + ranks - 1) % ranks, tag, one.bytes});
  }

  void submit() {
    std::vector<std::size_t> next(cluster_.size(), 0);
    for (std::size_t left = list_.size() * cluster_.size(); left > 0;) {
      const auto rank = static_cast<std::uint32_t>(below(cluster_.size()));
      if (next[rank] == list_.size()) continue;
      const bool all = std::find(batchers_.begin(), batchers_.end(), rank) != batchers_.end();
      do {
        submit_one(rank, next[rank]++);
        --left;
      } while (all && next[rank] < list_.size());
      cluster_.world.run_for(below(20'000));
    }
  }

  void kill() {
    const auto victim = static_cast<std::uint32_t>(below(cluster_.size()));
    if (death_ == Death::client) {
      cluster_.world.close(*cluster_.ranks[victim]);
      cluster_.ranks[victim] = nullptr;
      return;
    }
    cluster_.world.kill(cluster_.ranks[victim]->daemon());
    for (const auto& of_node : cluster_.view.ranks_of_node) {
      if (std::find(of_node.begin(), of_node.end(), victim) == of_node.end()) continue;
      for (const std::uint32_t rank : of_node) cluster_.ranks[rank] = nullptr;
    }
  }

  void look() {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      for (std::uint32_t rank = 0; rank < cluster_.size(); ++rank) {
        if (cluster_.ranks[rank] == nullptr) continue;
        SCOPED_TRACE(testing::Message() << "operation " << i << " of rank " << rank);
        look_at(list_[i], i, rank);
        if (testing::Test::HasFailure()) return;
      }
    }
  }

  void look_at(Listed& one, std::size_t index, std::uint32_t rank) {
    if (!one.passes) {
      if (succeeded(rank, one.submitted[rank].ticket)) {
        ASSERT_EQ(wrong_in(cluster_, one.kind, rank, one.submitted[rank]), "")
            << words_of(one.kind);
      }
      return;
    }
    succeeded(rank, one.sent[rank].ticket);
    if (!succeeded(rank, one.received[rank].ticket)) return;
    const std::uint32_t from = (rank + cluster_.size() - 1) % cluster_.size();
    expect_bytes(one.received[rank], index * 100 + from, one.bytes);
  }

  bool succeeded(std::uint32_t rank, std::uint64_t ticket) {
    Client& client = *cluster_.ranks[rank];
    EXPECT_TRUE(cluster_.world.run_until([&] { return client.done(ticket); }, 200 * kSecond))
        << "it waits for ever";
    const OpResult& result = client.result(ticket);
    if (result.status == Errc::ok) return true;
    EXPECT_NE(death_, Death::none) << result.detail;
    EXPECT_TRUE(result.status == Errc::rank_lost || result.status == Errc::peer_lost)
        << result.detail;
    EXPECT_FALSE(result.detail.empty());
    return false;
  }

  void end() {
    for (Client* client : cluster_.ranks) {
      if (client != nullptr) client->goodbye();
    }
    EXPECT_TRUE(cluster_.world.run_until([this] {
      return std::all_of(cluster_.ranks.begin(), cluster_.ranks.end(),
                         [](const Client* client) { return client == nullptr || client->lost(); });
    }));
    cluster_.world.run_until([this] { return cluster_.world.find_leak().empty(); }, 100 * kSecond);
    if (death_ != Death::daemon) {
      EXPECT_EQ(cluster_.world.find_leak(), "");
    }
  }

  std::mt19937_64 random_;
  Death death_;
  Cluster cluster_;
  std::vector<Listed> list_;
  std::vector<std::uint32_t> batchers_;
};

TEST(Batches, MeetSingleOperationsOfEveryKindWhateverDies) {
  const std::uint64_t seeds = tests::number_of("TERN_SIM_SEEDS", 450) / 10;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    BatchRun(seed, static_cast<Death>(seed % 3)).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tern::sim
