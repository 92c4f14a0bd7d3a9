// What exact ops deliver, through two or three whole daemons.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cluster.h"

namespace tern::sim {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
// Above eager_bytes and more than one chunk of every type; below it.
constexpr std::uint64_t kLarge = 20'011;
constexpr std::uint64_t kSmall = 17;

class Placement : public testing::TestWithParam<std::vector<std::uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Nodes, Placement,
                         testing::Values(std::vector<std::uint32_t>{1},
                                         std::vector<std::uint32_t>{3},
                                         std::vector<std::uint32_t>{1, 1},
                                         std::vector<std::uint32_t>{2, 1, 3}));

TEST_P(Placement, EveryTypeAndReductionMatchesTheReference) {
  DaemonShape shape;
  shape.lanes = 2;
  Cluster cluster(GetParam(), shape);
  cluster.join();
  std::uint64_t sequence = 0;
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    for (const Reduction reduction :
         {Reduction::sum, Reduction::average, Reduction::min, Reduction::max, Reduction::product}) {
      if (reduction == Reduction::average && !dtype_is_float(dtype)) continue;
      for (const std::uint64_t count : {kSmall, kLarge}) {
        auto request = all_reduce(dtype, count, reduction);
        if (dtype_is_float(dtype)) request.prescale = 0.5f;
        auto inputs = inputs_of(dtype, count, cluster.size(), sequence);
        if (!dtype_is_float(dtype)) {
          for (auto& input : inputs) {
            for (std::size_t i = 0; i < input.size(); ++i)
              input[i] = static_cast<std::byte>(i * 37 + sequence);
          }
        }
        const Bytes got = cluster.reduce(request, inputs, {}, count == kLarge);
        EXPECT_EQ(got == cluster.reference->all_reduce(request, nullptr, sequence, inputs), true)
            << dtype_name(dtype) << " " << reduction_name(reduction) << " x " << count;
        ++sequence;
        cluster.forget_arenas();
      }
    }
  }
  cluster.leave_all();
}

// Values whose sum is the same in any order, against plain arithmetic of the test's own.
TEST_P(Placement, SumsAndAveragesAreWhatASchoolchildWouldSay) {
  Cluster cluster(GetParam());
  cluster.join();
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const std::uint64_t count : {kSmall, kLarge}) {
      std::vector<Bytes> inputs;
      std::vector<float> sums(count, 0.0f);
      for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
        std::vector<float> values(count);
        for (std::uint64_t i = 0; i < count; ++i) {
          values[i] = static_cast<float>((i + rank) % 16);
          sums[i] += values[i];
        }
        inputs.push_back(bytes_of(dtype, values));
      }
      EXPECT_EQ(cluster.reduce(all_reduce(dtype, count), inputs) == bytes_of(dtype, sums), true);
      for (float& value : sums) value *= 1.0f / static_cast<float>(cluster.size());
      const Bytes average = cluster.reduce(all_reduce(dtype, count, Reduction::average), inputs);
      EXPECT_TRUE(dtype == DType::f64 || average == bytes_of(dtype, sums));
      cluster.forget_arenas();
    }
  }
}

TEST(Numerics, SumsOfF16AreKeptWiderThanF16) {
  // 2048 + 1 is not an f16; 2048 + 1 + 1 + ... is, if nothing was rounded in between on one node.
  Cluster cluster({4});
  cluster.join();
  std::vector<Bytes> inputs;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    inputs.push_back(
        bytes_of(DType::f16, std::vector<float>(kLarge, rank == 0 ? 2048.0f : 1.0f / 1.5f)));
  }
  const auto got = floats_of(DType::f16, cluster.reduce(all_reduce(DType::f16, kLarge), inputs));
  EXPECT_EQ(got[0], 2050.0f);
}

TEST(Numerics, MinAndMaxPropagateNan) {
  Cluster cluster({2, 1, 1});
  cluster.join();
  for (const std::uint64_t count : {kSmall, kLarge}) {
    for (std::uint32_t who = 0; who < 4; ++who) {
      std::vector<Bytes> inputs;
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        auto values = values_of(count, rank);
        if (rank == who) values[count / 2] = kNan;
        inputs.push_back(bytes_of(DType::f32, values));
      }
      for (const Reduction reduction : {Reduction::min, Reduction::max}) {
        const auto got =
            floats_of(DType::f32, cluster.reduce(all_reduce(DType::f32, count, reduction), inputs));
        EXPECT_TRUE(std::isnan(got[count / 2]));
        EXPECT_FALSE(std::isnan(got[count / 2 - 1]));
      }
      cluster.forget_arenas();
    }
  }
}

TEST(Numerics, NanAndInfinityReachAllRanks) {
  Cluster cluster({1, 2, 1});
  cluster.join();
  for (const std::uint64_t count : {kSmall, kLarge}) {
    std::vector<Bytes> inputs;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      auto values = values_of(count, rank);
      if (rank == 2) values[3] = kInf;
      if (rank == 1) values[4] = kNan;
      inputs.push_back(bytes_of(DType::f32, values));
    }
    const auto got = floats_of(DType::f32, cluster.reduce(all_reduce(DType::f32, count), inputs));
    EXPECT_EQ(got[3], kInf);
    EXPECT_TRUE(std::isnan(got[4]));
    EXPECT_TRUE(std::isfinite(got[5]));
  }
}

TEST(Numerics, IntegersWrap) {
  Cluster cluster({1, 1, 1});
  cluster.join();
  for (const std::uint64_t count : {kSmall, kLarge}) {
    const std::vector<std::int32_t> largest(count, std::numeric_limits<std::int32_t>::max());
    Bytes input(count * 4);
    std::memcpy(input.data(), largest.data(), input.size());
    const Bytes got = cluster.reduce(all_reduce(DType::i32, count), {input, input, input});
    std::int32_t first = 0;
    std::memcpy(&first, got.data(), sizeof(first));
    EXPECT_EQ(first, std::numeric_limits<std::int32_t>::max() - 2);
  }
}

TEST(Numerics, EagerAndChunkedSumsOfExactValuesAgree) {
  // The same op below and above eager_bytes.
  for (const std::uint64_t eager : {0u, 4096u}) {
    DaemonShape shape;
    shape.eager_bytes = eager;
    Cluster cluster({1, 1, 2}, shape);
    cluster.join();
    const auto inputs =
        std::vector<Bytes>(4, bytes_of(DType::f32, std::vector<float>(1000, 0.25f)));
    EXPECT_EQ(cluster.reduce(all_reduce(DType::f32, 1000), inputs) ==
                  bytes_of(DType::f32, std::vector<float>(1000, 1.0f)),
              true);
    cluster.leave_all();
  }
}

TEST(Numerics, BroadcastDeliversTheRootsBytesToEveryRank) {
  Cluster cluster({2, 1, 2});
  cluster.join();
  for (std::uint32_t root = 0; root < 5; ++root) {
    for (const std::uint64_t count : {kSmall, kLarge}) {
      for (const bool in_place : {false, true}) {
        auto request = all_reduce(DType::i32, count);
        request.kind = shm::OpKind::broadcast;
        request.root = root;
        const auto inputs = inputs_of(DType::i32, count, 5, root + 2);
        EXPECT_EQ(cluster.reduce(request, inputs, {}, in_place) == inputs[root], true);
        cluster.forget_arenas();
      }
    }
  }
  cluster.leave_all();
}

TEST(Numerics, TheResultDoesNotDependOnLanesOrSchedule) {
  Bytes first;
  for (std::uint32_t lanes = 1; lanes <= 3; ++lanes) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      DaemonShape shape;
      shape.lanes = lanes;
      Cluster cluster({2, 1, 1}, shape, seed * 31 + lanes);
      cluster.join();
      const Bytes got =
          cluster.reduce(all_reduce(DType::f32, kLarge), inputs_of(DType::f32, kLarge, 4));
      if (first.empty()) first = got;
      EXPECT_EQ(got == first, true) << lanes << " lanes, seed " << seed;
    }
  }
}

TEST(Numerics, AverageAndPrescaleOfIntegersAreRefused) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto inputs = inputs_of(DType::i32, kSmall, 2);
  auto pending = cluster.submit(all_reduce(DType::i32, kSmall, Reduction::average), inputs);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::invalid_argument, "average");
  auto request = all_reduce(DType::i32, kSmall);
  request.prescale = 0.5f;
  pending = cluster.submit(request, inputs);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::invalid_argument, "prescale");
}

}  // namespace
}  // namespace tern::sim
