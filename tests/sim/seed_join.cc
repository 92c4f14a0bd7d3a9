// Ranks come and go: connections, joins, declarations, the orderly end.

#include <gtest/gtest.h>

#include <algorithm>

#include "seed_run.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kArenaBytes = 8 << 20;

}  // namespace

void SeedRun::connect_missing() {
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    Rank& one = ranks_[rank];
    if (one.client != nullptr && !one.lost && !one.client->lost()) continue;
    if (one.client != nullptr && !one.lost) world_.close(*one.client);
    one = Rank{};
    one.client = &world_.connect(plan_.daemon_of_rank[rank], "job", kArenaBytes);
  }
  for (const Rank& one : ranks_) {
    EXPECT_TRUE(world_.run_until([&] { return one.client->ready(); }, kSecond)) << "no welcome";
  }
}

bool SeedRun::join_all(bool must_succeed) {
  // A rejoin may meet the old epoch before its end has gone round; then the rank tries again.
  std::vector<std::uint64_t> requests(size(), 0);
  std::vector<std::uint32_t> order(size());
  for (std::uint32_t rank = 0; rank < size(); ++rank) order[rank] = rank;
  random_.shuffle(order);
  JoinOptions options;
  options.verify = plan_.verify;
  const auto join = [&](std::uint32_t rank) {
    requests[rank] = ranks_[rank].client->join(group_id_, rank, size(), options);
  };
  for (const std::uint32_t rank : order) {
    join(rank);
    world_.run_for(random_.below(2'000'000));
  }
  int retries = 100;
  const bool answered = world_.run_until(
      [&] {
        bool all = true;
        for (std::uint32_t rank = 0; rank < size(); ++rank) {
          Client& client = *ranks_[rank].client;
          if (!client.answered(requests[rank])) {
            all = false;
          } else if (client.status_of(requests[rank]).status != Errc::ok && --retries > 0) {
            world_.trace("rank %u joins again: %s", rank,
                         client.status_of(requests[rank]).detail.c_str());
            world_.run_for(50'000'000);
            join(rank);
            all = false;
          }
        }
        return all;
      },
      200 * kSecond);
  if (!answered && must_succeed) {
    ADD_FAILURE() << "a join was not answered in time";
    return false;
  }
  GroupView view;
  view.size = size();
  std::map<std::int32_t, std::vector<std::uint32_t>> nodes;
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    Client& client = *ranks_[rank].client;
    if (!client.adopt_join(requests[rank], rank)) {
      ADD_FAILURE() << "rank " << rank
                    << " cannot join: " << client.status_of(requests[rank]).detail;
      return false;
    }
    nodes[client.group.node].push_back(rank);
    EXPECT_EQ(client.group.epoch, ranks_[0].client->group.epoch);
    EXPECT_EQ(client.group.lane_count, ranks_[0].client->group.lane_count);
  }
  epoch_ = ranks_[0].client->group.epoch;
  for (auto& [node, ranks] : nodes) view.ranks_of_node.push_back(ranks);
  EXPECT_EQ(view.ranks_of_node.size(), plan_.daemons.size());
  view.cut = plan_.cut;
  view.eager_blocks = plan_.eager_form >= collective::EagerForm::blocks;
  view.chunk_bytes = ranks_[0].client->group.chunk_bytes;
  view.eager_bytes = ranks_[0].client->group.eager_bytes;
  for (const DaemonShape& shape : plan_.daemons) {
    view.lossy_min_bytes = std::max(view.lossy_min_bytes, shape.lossy_min_bytes);
  }
  reference_ = std::make_unique<Reference>(view);
  world_.trace("epoch %u, %u lanes", epoch_, ranks_[0].client->group.lane_count);
  return !testing::Test::HasFailure();
}

// Trouble while ranks join: each is answered, whatever it is, and the next attempt works.
bool SeedRun::troubled_join() {
  world_.trace("trouble during the join");
  world_.set_faults(plan_.faults);
  JoinOptions options;
  options.timeout_ms = 20'000;
  std::vector<std::uint64_t> requests;
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    requests.push_back(ranks_[rank].client->join(group_id_, rank, size(), options));
  }
  for (std::uint64_t rounds = random_.below(120); rounds > 0; --rounds) world_.step();
  make_trouble();
  troubles_begun_ = false;  // more comes with the ops
  const auto answered = [&] {
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      const Rank& one = ranks_[rank];
      if (!one.lost && !one.client->lost() && !one.client->answered(requests[rank])) return false;
    }
    return true;
  };
  if (!world_.run_until(answered, 100 * kSecond)) {
    ADD_FAILURE() << "a join was not answered";
    return false;
  }
  heal();
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    Rank& one = ranks_[rank];
    if (one.lost || one.client->lost()) continue;
    if (one.client->adopt_join(requests[rank], rank)) {
      epoch_ = one.client->group.epoch;
      one.client->leave();
    } else {
      EXPECT_NE(one.client->status_of(requests[rank]).detail, "");
    }
  }
  connect_missing();
  return !testing::Test::HasFailure();
}

bool SeedRun::declare_all() {
  tainted_.assign(plan_.tensors.size(), false);
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    Client& client = *ranks_[rank].client;
    ranks_[rank].tensors.clear();
    for (const TensorSpec& spec : plan_.tensors) {
      const std::uint64_t request = client.declare(spec);
      Tensor* tensor = client.adopt_declare(request, spec);
      EXPECT_NE(tensor, nullptr) << client.status_of(request).detail;
      if (tensor == nullptr) return false;
      ranks_[rank].tensors.push_back(tensor);
    }
  }
  return true;
}

void SeedRun::leave_all() {
  for (Rank& rank : ranks_) rank.client->goodbye();
  const auto gone = [&] {
    for (const Rank& rank : ranks_) {
      if (!rank.client->lost()) return false;
    }
    return true;
  };
  EXPECT_TRUE(world_.run_until(gone, 30 * kSecond)) << "a goodbye was not answered";
  world_.run_until([&] { return world_.find_leak().empty(); }, 30 * kSecond);
  EXPECT_EQ(world_.find_leak(), "");
}

}  // namespace tern::sim
