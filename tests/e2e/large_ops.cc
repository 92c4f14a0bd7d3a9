// Operations of more than 2^32 elements and more than 4 GiB, through two real daemons, with memory
// in the arena. It takes 9 GiB of memory, so no stage of the tests has it; by hand:
//
//   cmake --build --preset release --target check_large_ops

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/e2e/cluster.h"

namespace tern::e2e {
namespace large_ops {

constexpr std::uint64_t kCount = (std::uint64_t{1} << 32) + 12'345;
constexpr std::uint64_t kArenaBytes = kCount + (64 << 20);

using Elements = std::span<std::uint8_t>;

// Not alike 2^32 elements apart.
std::uint8_t value_at(std::uint64_t element, std::uint8_t key) {
  return static_cast<std::uint8_t>((element ^ element >> 8 ^ element >> 32) * 3 + key);
}

void fill(Elements elements, std::uint8_t key) {
  for (std::uint64_t i = 0; i < elements.size(); ++i) elements[i] = value_at(i, key);
}

// Empty, or where it differs first.
std::string wrong_in(Elements elements, const std::function<std::uint8_t(std::uint64_t)>& value) {
  for (std::uint64_t i = 0; i < elements.size(); ++i) {
    if (elements[i] != value(i)) return "wrong at element " + std::to_string(i);
  }
  return "";
}

class LargeOps : public testing::Test {
 protected:
  LargeOps() : cluster_(2) {}

  void SetUp() override {
    ASSERT_TRUE(cluster_.running());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
      const std::string socket = cluster_[rank].socket();
      options.socket_path = socket.c_str();
      options.arena_bytes = kArenaBytes;
      clients_[rank].emplace(options);
      memory_[rank] = clients_[rank]->allocate<std::uint8_t>(kCount);
    }
    const tern_group_id id = clients_[0]->mint();
    on_both([&](std::size_t rank) {
      groups_[rank].emplace(clients_[rank]->join(id, static_cast<std::int32_t>(rank), 2));
    });
  }

  // In a thread for each rank.
  void on_both(const std::function<void(std::size_t)>& work) {
    std::string said[2];
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(rank);
        } catch (const tern::Failure& failure) {
          said[rank] = failure.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(said[0] + said[1], "");
  }
  tern_op op_of(std::size_t rank) {
    tern_op op = TERN_OP_INIT;
    op.dtype = TERN_U8;
    op.input = op.output = memory_[rank].data();
    op.count = kCount;
    return op;
  }

  Cluster cluster_;
  std::optional<tern::Client> clients_[2];
  std::optional<tern::Group> groups_[2];
  Elements memory_[2];
};

TEST_F(LargeOps, ABroadcastAReductionAndASendAreRightToTheLastElement) {
  on_both([&](std::size_t rank) { fill(memory_[rank], static_cast<std::uint8_t>(rank * 7)); });
  on_both([&](std::size_t rank) {
    tern_op op = op_of(rank);
    op.root = 1;
    groups_[rank]->broadcast(op).wait();
  });
  for (const Elements elements : memory_) {
    ASSERT_EQ(wrong_in(elements, [](std::uint64_t i) { return value_at(i, 7); }), "");
  }

  on_both([&](std::size_t rank) { fill(memory_[rank], static_cast<std::uint8_t>(rank * 11)); });
  on_both([&](std::size_t rank) { groups_[rank]->all_reduce(op_of(rank)).wait(); });
  const auto sum = [](std::uint64_t i) {
    return static_cast<std::uint8_t>(value_at(i, 0) + value_at(i, 11));
  };
  for (const Elements elements : memory_) ASSERT_EQ(wrong_in(elements, sum), "");

  fill(memory_[0], 3);
  on_both([&](std::size_t rank) {
    tern_op op = op_of(rank);
    op.peer = static_cast<std::int32_t>(1 - rank);
    (rank == 0 ? groups_[rank]->send(op) : groups_[rank]->recv(op)).wait();
  });
  ASSERT_EQ(wrong_in(memory_[1], [](std::uint64_t i) { return value_at(i, 3); }), "");
}

TEST_F(LargeOps, AShareLiesBeyond32Bits) {
  on_both([&](std::size_t rank) { fill(memory_[rank], static_cast<std::uint8_t>(rank * 5)); });
  const std::uint64_t counts[] = {kCount - 1'000, 1'000};
  on_both([&](std::size_t rank) {
    tern_op op = op_of(rank);
    op.counts = counts;
    op.output = nullptr;
    groups_[rank]->reduce_scatter(op).wait();
  });
  const auto sum = [](std::uint64_t i) {
    return static_cast<std::uint8_t>(value_at(i, 0) + value_at(i, 5));
  };
  EXPECT_EQ(wrong_in(memory_[0].first(counts[0]), sum), "");
  const auto beyond = [&](std::uint64_t i) { return sum(counts[0] + i); };
  EXPECT_EQ(wrong_in(memory_[1].last(counts[1]), beyond), "");
}

}  // namespace large_ops
}  // namespace tern::e2e
