// Groups that are split, step by step.

#include <gtest/gtest.h>

#include "cluster.h"

namespace tern::sim {
namespace split_test {
namespace {

class Splits : public ::testing::Test {
 protected:
  // All ranks split by these colours; their requests.
  std::vector<std::uint64_t> split(const std::vector<std::int32_t>& colors) {
    std::vector<std::uint64_t> requests;
    for (std::size_t rank = 0; rank < colors.size(); ++rank) {
      requests.push_back(cluster_.ranks[rank]->split(colors[rank], 0));
    }
    return requests;
  }
  void adopt(const std::vector<std::uint64_t>& requests) {
    for (std::size_t rank = 0; rank < requests.size(); ++rank) {
      ASSERT_TRUE(cluster_.await(*cluster_.ranks[rank], requests[rank]));
      ASSERT_TRUE(cluster_.ranks[rank]->adopt_split(requests[rank]))
          << cluster_.ranks[rank]->status_of(requests[rank]).detail;
    }
  }
  std::uint64_t reduce(std::size_t rank, float value) {
    Client& client = *cluster_.ranks[rank];
    OpRequest request = all_reduce(DType::f32, 1);
    request.input = request.output = client.allocate(64);
    std::memcpy(client.at(request.input), &value, sizeof(value));
    output_[rank] = request.output;
    return client.submit(request);
  }
  float result(std::size_t rank) {
    float value = 0;
    std::memcpy(&value, cluster_.ranks[rank]->at(output_[rank]), sizeof(value));
    return value;
  }

  Cluster cluster_{{2, 1, 1}};
  std::map<std::size_t, std::uint64_t> output_;
};

TEST_F(Splits, ChildrenWorkAndLeaveNothingBehind) {
  cluster_.join();
  adopt(split({0, 1, 1, 0}));
  EXPECT_EQ(cluster_.ranks[3]->rank, 1u);
  EXPECT_EQ(cluster_.ranks[3]->size, 2u);
  std::vector<std::uint64_t> tickets;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    tickets.push_back(reduce(rank, static_cast<float>(rank)));
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(
        cluster_.world.run_until([&] { return cluster_.ranks[rank]->done(tickets[rank]); }));
    EXPECT_EQ(result(rank), 3.0f);
  }
  cluster_.leave_all();
}

TEST_F(Splits, AMissingRankIsNamedAndTheNextTryMeetsIt) {
  cluster_.join();
  JoinOptions options;
  options.timeout_ms = 2000;
  std::vector<std::uint64_t> requests;
  for (const std::size_t rank : {0u, 1u, 3u}) {
    requests.push_back(cluster_.ranks[rank]->split(0, 0, options));
  }
  std::size_t next = 0;
  for (const std::size_t rank : {0u, 1u, 3u}) {
    Client& client = *cluster_.ranks[rank];
    ASSERT_TRUE(cluster_.await(client, requests[next]));
    const OpResult told = client.status_of(requests[next++]);
    EXPECT_EQ(told.status, Errc::timeout);
    EXPECT_TRUE(contains(told.detail, "waited for rank 2")) << told.detail;
  }
  adopt(split({0, 0, 0, 0}));
  EXPECT_EQ(cluster_.ranks[2]->size, 4u);
  cluster_.leave_all();
}

TEST_F(Splits, ADaemonThatDiesEndsTheSplitAndTheChildrenItIsIn) {
  cluster_.join();
  const std::vector<std::uint64_t> requests = split({0, 0, 1});
  cluster_.world.run_for(kSecond);
  cluster_.world.kill(2);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(cluster_.await(*cluster_.ranks[rank], requests[rank]));
    EXPECT_EQ(cluster_.ranks[rank]->status_of(requests[rank]).status, Errc::peer_lost)
        << cluster_.ranks[rank]->status_of(requests[rank]).detail;
  }
}

TEST_F(Splits, AProcessThatDiesEndsItsChildAlone) {
  cluster_.join();
  adopt(split({0, 1, 1, 0}));
  cluster_.world.close(*cluster_.ranks[3]);
  cluster_.ranks[3] = nullptr;
  const std::uint64_t alive[] = {reduce(1, 1), reduce(2, 2)};
  const std::uint64_t bereft = reduce(0, 1);
  ASSERT_TRUE(cluster_.world.run_until([&] {
    return cluster_.ranks[0]->done(bereft) && cluster_.ranks[1]->done(alive[0]) &&
           cluster_.ranks[2]->done(alive[1]);
  }));
  EXPECT_EQ(cluster_.ranks[0]->result(bereft).status, Errc::rank_lost);
  EXPECT_EQ(cluster_.ranks[1]->result(alive[0]).status, Errc::ok);
  EXPECT_EQ(result(2), 3.0f);
}

TEST_F(Splits, SomebodyWithTheIdTakesNoPlaceInAChild) {
  cluster_.join();
  Client& outsider = cluster_.world.connect(2, "job", 1 << 20);
  ASSERT_TRUE(cluster_.world.run_until([&] { return outsider.ready(); }));
  const auto waiting = cluster_.ranks[0]->split(0, 0);
  const auto request = outsider.split_of(cluster_.ranks[3]->group.group, 0, 0, {});
  ASSERT_TRUE(cluster_.await(outsider, request));
  EXPECT_EQ(outsider.status_of(request).status, Errc::unknown_group);
  EXPECT_FALSE(cluster_.ranks[0]->answered(waiting));
}

}  // namespace
}  // namespace split_test
}  // namespace tern::sim
