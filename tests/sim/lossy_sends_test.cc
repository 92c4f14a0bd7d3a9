// Sends that write out a recipe without memory: what leaves a node loses what the recipe drops, and
// nothing else does. The receiver reads the blocks, whatever its own recipe.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "point_to_point.h"

namespace tern::sim {
namespace lossy_sends_test {

using shm::OpKind;

DaemonShape of_lanes(std::uint32_t lanes) {
  DaemonShape shape;
  shape.lanes = lanes;
  return shape;
}

std::vector<float> values_of(std::uint64_t count, std::uint32_t key = 0) {
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(1 + (i * 7919 + std::uint64_t{131} * key) % 4001) / 37.0f;
  }
  return values;
}

struct Lossy {
  std::uint32_t from = 0, to = 1;
  std::vector<float> values;
  std::string send_recipe, recv_recipe;
  DType dtype = DType::f32;
  std::uint32_t tag = 7;
};

Passed submit(Cluster& cluster, OpKind kind, const Lossy& lossy) {
  const bool sends = kind == OpKind::send;
  Client& client = *cluster.ranks[sends ? lossy.from : lossy.to];
  OpRequest request = pass_request(
      kind, {sends ? lossy.to : lossy.from, lossy.tag, lossy.values.size(), lossy.dtype});
  request.recipe = sends ? lossy.send_recipe : lossy.recv_recipe;
  const Bytes bytes = bytes_of(lossy.dtype, lossy.values);
  request.input = request.output = client.allocate(bytes.size() + 64);
  if (sends) std::copy(bytes.begin(), bytes.end(), client.at(request.input));
  return {&client, client.submit(request), request.input, lossy.values.size()};
}

struct Both {
  Passed out, in;
};

Both exchange(Cluster& cluster, const Lossy& lossy, bool recv_first = false) {
  Both both;
  if (recv_first) both.in = submit(cluster, OpKind::recv, lossy);
  both.out = submit(cluster, OpKind::send, lossy);
  if (!recv_first) both.in = submit(cluster, OpKind::recv, lossy);
  await(cluster, both.out);
  await(cluster, both.in);
  return both;
}

std::vector<float> received(const Both& both, DType dtype = DType::f32) {
  EXPECT_EQ(both.out.result().status, Errc::ok) << both.out.result().detail;
  EXPECT_EQ(both.in.result().status, Errc::ok) << both.in.result().detail;
  EXPECT_EQ(both.in.result().elements, both.in.count);
  const std::byte* const at = both.in.client->at(both.in.at);
  return floats_of(dtype, Bytes(at, at + both.in.count * dtype_bytes(dtype)));
}

std::vector<float> as_type(DType dtype, const std::vector<float>& values) {
  return floats_of(dtype, bytes_of(dtype, values));
}

TEST(LossySends, LoseWhatTheRecipeDropsWhereTheyLeaveTheirNode) {
  for (const std::uint64_t count : {300u, 4'096u, 4'097u, 30'000u}) {
    for (const bool recv_first : {false, true}) {
      Cluster cluster({2, 1}, of_lanes(2));
      cluster.join();
      SCOPED_TRACE(testing::Message() << count << " elements, recv first: " << recv_first);
      const std::vector<float> values = values_of(count);
      const Both away = exchange(cluster, {1, 2, values, "bf16", "bf16"}, recv_first);
      EXPECT_EQ(received(away), as_type(DType::bf16, values));
      EXPECT_LT(away.out.result().bytes_sent, count * sizeof(float) * 6 / 10);
      const Both here = exchange(cluster, {0, 1, values, "bf16", "bf16"}, recv_first);
      EXPECT_EQ(received(here), values) << "it stays on its node";
      cluster.leave_all();
    }
  }
}

TEST(LossySends, HalvesAreCompressedToo) {
  Cluster cluster({1, 1});
  cluster.join();
  const std::vector<float> values = as_type(DType::f16, values_of(20'000));
  const Both both =
      exchange(cluster, {0, 1, values, "none(int:bits=8)", "none(int:bits=8)", DType::f16});
  const std::vector<float> got = received(both, DType::f16);
  EXPECT_LT(both.out.result().bytes_sent, 20'000u * 2 * 6 / 10);
  EXPECT_NE(got, values);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(got[i], values[i], 1.0f) << i;
  cluster.leave_all();
}

TEST(LossySends, WhatIsSmallArrivesBitForBit) {
  // 1 KiB is the least that is compressed, and the most that travels with its offer.
  Cluster cluster({1, 1});
  cluster.join();
  const std::vector<float> values = values_of(200);
  EXPECT_EQ(received(exchange(cluster, {0, 1, values, "bf16", "bf16"})), values);
  EXPECT_TRUE(received(exchange(cluster, {0, 1, {}, "bf16", "bf16"})).empty());
  cluster.leave_all();
}

TEST(LossySends, BelowTheFloorAndBeyondAnOfferTheyArriveBitForBit) {
  DaemonShape shape;
  shape.lossy_min_bytes = 64 << 10;
  Cluster cluster({1, 1}, shape);
  cluster.join();
  const std::vector<float> values = values_of(10'000);
  EXPECT_EQ(received(exchange(cluster, {0, 1, values, "bf16", "bf16"})), values);
  cluster.leave_all();
}

TEST(LossySends, APieceWithAValueThatIsNotFiniteTravelsAsItIs) {
  Cluster cluster({1, 1});
  cluster.join();
  std::vector<float> values = values_of(12'000);
  values[5'000] = std::numeric_limits<float>::infinity();
  const std::vector<float> got =
      received(exchange(cluster, {0, 1, values, "none(int:bits=8)", "none(int:bits=8)"}));
  // A piece is a chunk of 4,096.
  const auto same = [&](std::size_t from, std::size_t to) {
    return std::equal(values.begin() + static_cast<std::ptrdiff_t>(from),
                      values.begin() + static_cast<std::ptrdiff_t>(to),
                      got.begin() + static_cast<std::ptrdiff_t>(from));
  };
  EXPECT_FALSE(same(0, 4'096));
  EXPECT_TRUE(same(4'096, 8'192));
  EXPECT_FALSE(same(8'192, 12'000));
  cluster.leave_all();
}

TEST(LossySends, TheReceiverNeedsNoneOfTheSendersRecipe) {
  Cluster cluster({1, 1});
  cluster.join();
  const std::vector<float> values = values_of(9'000);
  EXPECT_EQ(received(exchange(cluster, {0, 1, values, "bf16", "none(int:bits=4+huffman)"})),
            as_type(DType::bf16, values));
  EXPECT_EQ(received(exchange(cluster, {0, 1, values, "", "bf16"})), values)
      << "it takes what has lost nothing";
  for (const char* exact : {"raw", "auto", "lossless"}) {
    EXPECT_EQ(received(exchange(cluster, {0, 1, values, exact, ""})), values) << exact;
  }
  cluster.leave_all();
}

TEST(LossySends, OtherTypesTravelAsTheyAre) {
  Cluster cluster({1, 1});
  cluster.join();
  Lossy lossy{0, 1, values_of(5'000), "bf16", ""};
  lossy.dtype = DType::f64;
  const Both both = exchange(cluster, lossy);
  ASSERT_EQ(both.in.result().status, Errc::ok) << both.in.result().detail;
  const std::byte* const at = both.in.client->at(both.in.at);
  EXPECT_EQ(Bytes(at, at + 5'000 * sizeof(double)), bytes_of(DType::f64, lossy.values));
  cluster.leave_all();
}

TEST(LossySends, ARecvThatDoesNotAskIsAMismatchOnBothSidesAndTheNextIsWell) {
  Cluster cluster({2, 1});
  cluster.join();
  for (const std::uint32_t to : {1u, 2u}) {
    for (const std::uint64_t count : {10u, 9'000u}) {
      const std::vector<float> values = values_of(count);
      const Both both = exchange(cluster, {0, to, values, "bf16", ""});
      const std::string text = "rank 0 sends to rank " + std::to_string(to) +
                               " with tag 7 by a recipe that loses values, and the recv has none: "
                               "give both one, or neither";
      expect_failed(both.out, Errc::mismatch, text);
      expect_failed(both.in, Errc::mismatch, text);
      EXPECT_EQ(received(exchange(cluster, {0, to, values, "", ""})), values);
    }
  }
  cluster.leave_all();
}

TEST(LossySends, WhatNeedsAMemoryIsRefused) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto refused = [&](const char* recipe, const std::string& text) {
    for (const OpKind kind : {OpKind::send, OpKind::recv}) {
      const Passed passed = submit(cluster, kind, {0, 1, values_of(5'000), recipe, recipe});
      await(cluster, passed);
      expect_failed(passed, Errc::bad_recipe, text);
    }
  };
  const std::string no_memory =
      "the operation takes no tensor that could have the recipe's memory; write none(...)";
  refused("ef(int:bits=8)", no_memory);
  refused("3lc:s=1", no_memory);
  refused("diana(qsgd:levels=4)", no_memory);
  refused("xordelta", "xordelta must be in the tensor's declaration");
  refused("no such", "the operation's recipe cannot be read");
  cluster.leave_all();
}

// Neither time nor lanes: the draws are those of the values, the two ranks and the tag.
TEST(LossySends, RandomRecipesMakeTheSameBitsOfTheSameValues) {
  const std::vector<float> values = values_of(20'000);
  const auto sent = [&](std::uint32_t lanes, std::uint32_t tag, std::uint32_t key) {
    Cluster cluster({1, 1}, of_lanes(lanes), lanes);
    cluster.join();
    Lossy lossy{0, 1, key == 0 ? values : values_of(20'000, key), "none(qsgd:levels=4)", "bf16"};
    lossy.tag = tag;
    std::vector<float> got = received(exchange(cluster, lossy));
    EXPECT_EQ(received(exchange(cluster, lossy)), got) << "again";
    cluster.leave_all();
    return got;
  };
  const std::vector<float> got = sent(1, 7, 0);
  EXPECT_NE(got, values);
  EXPECT_EQ(sent(3, 7, 0), got);
  EXPECT_NE(sent(1, 8, 0), got);
}

TEST(LossySends, TheyArriveOverLinksThatBreak) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Cluster cluster({1, 1, 1}, of_lanes(2), seed);
    cluster.join();
    const std::vector<float> values = values_of(40'000, static_cast<std::uint32_t>(seed));
    std::vector<Both> all;
    for (std::uint32_t i = 0; i < 6; ++i) {
      const Lossy lossy{i % 3, (i + 1) % 3, values, "bf16", "bf16", DType::f32, i};
      Both both;
      both.out = submit(cluster, OpKind::send, lossy);
      both.in = submit(cluster, OpKind::recv, lossy);
      all.push_back(both);
      cluster.world.run_for(cluster.world.random.below(500'000));
      if (i % 2 == 0) cluster.world.cut_all(i % 3);
    }
    for (const Both& both : all) {
      await(cluster, both.out);
      await(cluster, both.in);
      EXPECT_EQ(received(both), as_type(DType::bf16, values));
    }
    cluster.leave_all();
  }
}

}  // namespace lossy_sends_test
}  // namespace tern::sim
