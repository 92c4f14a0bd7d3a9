// Memory beside the arena: the daemon makes it, lanes use it in place, and it ends when it is freed
// and no op uses it any more.

#include <gtest/gtest.h>

#include "cluster.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kCount = 20'000;
constexpr std::uint64_t kBytes = kCount * sizeof(float);

class RegionsOfAClient : public testing::Test {
 protected:
  explicit RegionsOfAClient(const DaemonShape& shape = {}) : cluster({1, 1}, shape) {
    cluster.join();
  }

  Client& client() { return *cluster.ranks[0]; }
  OpResult await(std::uint64_t request) {
    EXPECT_TRUE(cluster.await(client(), request));
    return client().status_of(request);
  }
  std::uint32_t create(std::uint64_t bytes = kBytes) {
    const std::uint64_t request = client().create_region(bytes);
    EXPECT_EQ(await(request).status, Errc::ok) << await(request).detail;
    const auto created = client().answer<shm::RegionCreatedPacket>(request);
    return created ? created->region : 0;
  }
  std::uint32_t open(std::uint64_t bytes = kBytes) {
    const std::uint32_t region = create(bytes);
    const OpResult opened = await(client().about_region(shm::PacketKind::region_open, region));
    EXPECT_EQ(opened.status, Errc::ok) << opened.detail;
    return region;
  }
  void put(std::uint32_t region, const Bytes& values) {
    std::copy(values.begin(), values.end(), client().region(region).begin());
  }
  // Rank 0 submits from these regions.
  std::uint64_t submit(std::uint32_t input, std::uint32_t output, std::uint64_t offset = 0) {
    OpRequest request = all_reduce(DType::f32, kCount);
    request.input_region = input;
    request.output_region = output;
    request.input = request.output = offset;
    return client().submit(request);
  }
  std::uint64_t submit_other(const Bytes& values) {
    Client& other = *cluster.ranks[1];
    OpRequest request = all_reduce(DType::f32, kCount);
    request.input = request.output = other.allocate(kBytes);
    std::copy(values.begin(), values.end(), other.at(request.input));
    return other.submit(request);
  }
  OpResult result(std::uint64_t ticket) {
    EXPECT_TRUE(cluster.world.run_until([&] { return client().done(ticket); }));
    return client().result(ticket);
  }
  Bytes sum() {
    return cluster.reference->all_reduce(all_reduce(DType::f32, kCount), nullptr, 0, inputs);
  }

  Cluster cluster;
  std::vector<Bytes> inputs = inputs_of(DType::f32, kCount, 2);
};

TEST_F(RegionsOfAClient, HoldInputsAndOutputs) {
  const std::uint32_t input = open(), output = open();
  EXPECT_NE(input, output);
  put(input, inputs[0]);
  const std::uint64_t ticket = submit(input, output);
  submit_other(inputs[1]);
  const OpResult ended = result(ticket);
  EXPECT_EQ(ended.status, Errc::ok) << ended.detail;
  const Bytes expected = sum();
  const auto got = client().region(output).first(kBytes);
  EXPECT_EQ(std::equal(got.begin(), got.end(), expected.begin()), true);
  const auto kept = client().region(input).first(kBytes);
  EXPECT_EQ(std::equal(kept.begin(), kept.end(), inputs[0].begin()), true);
  for (const std::uint32_t region : {input, output}) {
    EXPECT_EQ(await(client().about_region(shm::PacketKind::region_free, region)).status, Errc::ok);
  }
  cluster.leave_all();
}

TEST_F(RegionsOfAClient, ThatAreUnknownOrTooShortAreRefused) {
  const std::uint32_t region = open();
  const std::uint32_t unopened = create();
  const OpResult unknown = result(submit(77, 77));
  EXPECT_EQ(unknown.status, Errc::invalid_argument);
  EXPECT_EQ(unknown.detail, "unknown memory region");
  EXPECT_EQ(result(submit(region, unopened)).detail, "unknown memory region");
  const OpResult outside = result(submit(region, region, 4096));
  EXPECT_EQ(outside.status, Errc::invalid_argument);
  EXPECT_EQ(outside.detail, "the tensor is not inside the client's region");
  EXPECT_EQ(await(client().about_region(shm::PacketKind::region_open, 77)).status,
            Errc::invalid_argument);
  EXPECT_EQ(await(client().about_region(shm::PacketKind::region_open, region)).status,
            Errc::invalid_argument)
      << "twice";
  EXPECT_EQ(await(client().about_region(shm::PacketKind::region_free, 77)).status,
            Errc::invalid_argument);
  EXPECT_EQ(await(client().about_region(shm::PacketKind::region_free, unopened)).status, Errc::ok);
  EXPECT_EQ(await(client().about_region(shm::PacketKind::region_free, region)).status, Errc::ok);
  EXPECT_EQ(await(client().about_region(shm::PacketKind::region_free, region)).status,
            Errc::invalid_argument)
      << "twice";
}

TEST_F(RegionsOfAClient, StayUntilNoOpUsesThem) {
  const std::uint32_t region = open();
  put(region, inputs[0]);
  const std::uint64_t ticket = submit(region, region);
  const std::uint64_t freed = client().about_region(shm::PacketKind::region_free, region);
  cluster.world.run_for(kSecond);
  EXPECT_FALSE(client().answered(freed)) << "rank 1 has not submitted yet";
  EXPECT_EQ(result(submit(region, region)).detail, "unknown memory region");
  submit_other(inputs[1]);
  EXPECT_EQ(result(ticket).status, Errc::ok) << result(ticket).detail;
  EXPECT_EQ(await(freed).status, Errc::ok);
  const Bytes expected = sum();
  const auto got = client().region(region).first(kBytes);
  EXPECT_EQ(std::equal(got.begin(), got.end(), expected.begin()), true);
}

TEST_F(RegionsOfAClient, AreSoManyAndNoMore) {
  std::vector<std::uint32_t> regions;
  for (std::uint32_t i = 0; i < shm::kMaxRegions; ++i) regions.push_back(open(4096));
  for (int i = 0; i < 1000; ++i) {
    const OpResult refused = await(client().create_region(4096));
    ASSERT_EQ(refused.status, Errc::quota_exceeded);
    ASSERT_EQ(refused.detail,
              "the client has 64 regions, as many as one may; free one, or make larger ones");
  }
  EXPECT_EQ(await(client().about_region(shm::PacketKind::region_free, regions[5])).status,
            Errc::ok);
  create(4096);
  cluster.leave_all();
}

TEST_F(RegionsOfAClient, AClientThatDiesLeavesNone) {
  const std::uint32_t region = open();
  create();
  submit(region, region);
  cluster.world.run_for(kSecond / 100);
  cluster.world.close(client());
  cluster.ranks[0] = nullptr;
  cluster.ranks[1]->goodbye();
  EXPECT_TRUE(
      cluster.world.run_until([this] { return cluster.world.find_leak().empty(); }, 100 * kSecond));
  EXPECT_EQ(cluster.world.find_leak(), "");
}

TEST_F(RegionsOfAClient, EndWithTheirClientWhileTheyAreBeingFreed) {
  const std::uint32_t region = open();
  submit(region, region);
  client().about_region(shm::PacketKind::region_free, region);
  cluster.world.run_for(kSecond / 100);
  cluster.leave_all();
}

class RegionsWithinALimit : public RegionsOfAClient {
 protected:
  RegionsWithinALimit() : RegionsOfAClient(limited()) {}
  static DaemonShape limited() {
    DaemonShape shape;
    shape.adjust = [](daemon::ConductorSettings& settings) {
      settings.limits.max_arena_bytes = 10 << 20;
    };
    return shape;
  }
};

TEST_F(RegionsWithinALimit, CountAsTheArenaDoes) {
  const std::uint32_t first = create(1 << 20);
  const OpResult refused = await(client().create_region(2 << 20));
  EXPECT_EQ(refused.status, Errc::quota_exceeded);
  EXPECT_EQ(refused.detail,
            "a region of 2097152 bytes beside 9437184 exceeds max_arena_bytes = 10485760");
  EXPECT_EQ(await(client().create_region(0)).status, Errc::quota_exceeded);
  EXPECT_EQ(await(client().create_region(~std::uint64_t{0})).status, Errc::quota_exceeded);
  EXPECT_EQ(await(client().about_region(shm::PacketKind::region_free, first)).status, Errc::ok);
  create(2 << 20);
}

}  // namespace
}  // namespace tern::sim
