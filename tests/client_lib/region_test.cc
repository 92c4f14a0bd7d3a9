#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "client_lib/regions.h"
#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace region_test {
namespace {

class RegionsOfAProgram : public ClientTest {
 protected:
  explicit RegionsOfAProgram(FakeOptions options = {}) : ClientTest(std::move(options)) {}

  float* region(std::uint64_t count) {
    void* memory = nullptr;
    EXPECT_EQ(tern_region_create(client, count * sizeof(float), &memory), TERN_OK)
        << tern_error_detail();
    return static_cast<float*>(memory);
  }
};

TEST_F(RegionsOfAProgram, AreUsedInPlace) {
  float* const input = region(3000);
  float* const output = region(3000);
  ASSERT_NE(input, nullptr);
  for (int i = 0; i < 3000; ++i) input[i] = static_cast<float>(i);
  const tern_op op = f32_op(input, output + 8, 2000);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_all_reduce(group, &op, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  EXPECT_TRUE(std::equal(input, input + 2000, output + 8));
  const shm::SubmitEntry entry = daemon.seen()[0].entry;
  EXPECT_EQ(entry.input_region, 1u);
  EXPECT_EQ(entry.output_region, 2u);
  EXPECT_EQ(entry.input_offset, 0u);
  EXPECT_EQ(entry.output_offset, 32u);
}

TEST_F(RegionsOfAProgram, HoldMoreThanTheArena) {
  constexpr std::uint64_t kMuch = 4 * kTestArenaBytes / sizeof(float);
  void* memory = nullptr;
  EXPECT_EQ(tern_alloc(client, kMuch * sizeof(float), &memory), TERN_ERR_OUT_OF_MEMORY);
  float* const values = region(kMuch);
  values[kMuch - 1] = 3;
  const tern_op op = f32_op(values, values, kMuch);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_all_reduce(group, &op, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
}

TEST_F(RegionsOfAProgram, AreGivenBackOnce) {
  float* const memory = region(16);
  EXPECT_EQ(tern_free(client, memory + 1), TERN_ERR_INVALID_ARGUMENT) << "not its beginning";
  ASSERT_TERN_OK(tern_free(client, memory));
  EXPECT_EQ(daemon.request_count(shm::PacketKind::region_free), 1u);
  EXPECT_EQ(tern_free(client, memory), TERN_ERR_INVALID_ARGUMENT);
}

TEST_F(RegionsOfAProgram, WhatIsSentIsCopied) {
  float* const memory = region(16);
  tern_op op = f32_op(memory, nullptr, 16);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_send(group, &op, &ticket));
  daemon.await_entries(1);
  EXPECT_EQ(daemon.seen()[0].entry.input_region, 0u);
}

TEST_F(RegionsOfAProgram, ADaemonsRefusalIsTold) {
  daemon.set_answers(Answers::refuse);
  void* memory = &daemon;
  EXPECT_EQ(tern_region_create(client, 4096, &memory), TERN_ERR_QUOTA_EXCEEDED);
  EXPECT_STREQ(tern_error_detail(), "only 3 widgets are allowed");
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(tern_region_create(client, 0, &memory), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_region_create(nullptr, 1, &memory), TERN_ERR_INVALID_ARGUMENT);
}

TEST_F(RegionsOfAProgram, ALateOneIsGivenBackBeforeTheNext) {
  Connection other(daemon.path(), 50);
  ASSERT_TERN_OK(other.status);
  daemon.hold_regions(true);
  void* late = nullptr;
  ASSERT_EQ(tern_region_create(other.client, 4096, &late), TERN_ERR_TIMEOUT);
  EXPECT_EQ(late, nullptr);
  daemon.await_requests(shm::PacketKind::region_create, 1);
  daemon.hold_regions(false);
  ASSERT_EQ(daemon.request_count(shm::PacketKind::region_free), 0u);
  (void)tern_region_create(other.client, 4096, &late);
  daemon.await_requests(shm::PacketKind::region_create, 2);
  std::vector<shm::PacketKind> regions = daemon.requests();
  std::erase_if(regions, [](shm::PacketKind kind) {
    return kind != shm::PacketKind::region_create && kind != shm::PacketKind::region_free;
  });
  regions.resize(3);
  EXPECT_EQ(regions, (std::vector{shm::PacketKind::region_create, shm::PacketKind::region_free,
                                  shm::PacketKind::region_create}));
}

TEST_F(RegionsOfAProgram, ALateOneIsGivenBackWhileAnotherQuestionWaits) {
  Connection other(daemon.path(), 50);
  ASSERT_TERN_OK(other.status);
  daemon.hold_regions(true);
  void* late = nullptr;
  ASSERT_EQ(tern_region_create(other.client, 4096, &late), TERN_ERR_TIMEOUT);
  daemon.await_requests(shm::PacketKind::region_create, 1);
  daemon.hold_regions(false);
  // The first answer comes behind that for the region, and the second question behind its end.
  tern_group_id id{};
  for (int answers = 0; answers < 2;) answers += tern_group_mint(other.client, &id) == TERN_OK;
  EXPECT_EQ(daemon.request_count(shm::PacketKind::region_free), 1u);
}

TEST_F(RegionsOfAProgram, AfterTheDaemonsEndTheyAreFreedHereAlone) {
  float* const memory = region(16);
  daemon.die();
  void* another = nullptr;
  EXPECT_EQ(tern_region_create(client, 4096, &another), TERN_ERR_DAEMON_LOST);
  memory[0] = 1;
  EXPECT_EQ(tern_free(client, memory), TERN_OK) << tern_error_detail();
}

TEST_F(RegionsOfAProgram, OfCppAreSpans) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  options.socket_path = daemon.path().c_str();
  options.arena_bytes = kTestArenaBytes;
  tern::Client other(options);
  const std::span<double> values = other.allocate_region<double>(100);
  EXPECT_EQ(values.size(), 100u);
  values[99] = 1;
  other.deallocate(values);
}

class CopiesBesideTheArena : public RegionsOfAProgram {
 protected:
  // An all_reduce of so many bytes outside of all that the daemon sees.
  tern_status reduce(std::uint64_t bytes) {
    std::vector<float> input(bytes / sizeof(float)), output(input.size(), -1.0f);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 1021);
    const tern_op op = f32_op(input.data(), output.data(), input.size());
    tern_ticket ticket = 0;
    if (const tern_status status = tern_all_reduce(group, &op, &ticket)) return status;
    EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
    EXPECT_EQ(output, input);
    return TERN_OK;
  }
  std::size_t made() { return daemon.request_count(shm::PacketKind::region_create); }
  std::size_t freed() { return daemon.request_count(shm::PacketKind::region_free); }
};

TEST_F(CopiesBesideTheArena, HaveARegionThatIsKeptForTheNext) {
  ASSERT_TERN_OK(reduce(kTestArenaBytes / 2));
  EXPECT_EQ(made(), 0u);
  ASSERT_TERN_OK(reduce(2 * kTestArenaBytes));
  EXPECT_EQ(daemon.seen().back().entry.input_region, 1u);
  EXPECT_EQ(daemon.seen().back().entry.output_region, 1u);
  ASSERT_TERN_OK(reduce(2 * kTestArenaBytes - 4096));
  EXPECT_EQ(made(), 1u);
  EXPECT_EQ(freed(), 0u);
}

TEST_F(CopiesBesideTheArena, GiveWayToALargerOne) {
  ASSERT_TERN_OK(reduce(2 * kTestArenaBytes));
  ASSERT_TERN_OK(reduce(3 * kTestArenaBytes));
  EXPECT_EQ(made(), 2u);
  EXPECT_EQ(freed(), 1u);
  EXPECT_EQ(daemon.seen().back().entry.input_region, 2u);
}

TEST_F(CopiesBesideTheArena, WaitForOthersIfTheArenaCouldHoldThem) {
  std::vector<float> values(kTestArenaBytes / sizeof(float));
  const tern_op middle = f32_op(values.data(), values.data(), values.size() * 3 / 4);
  daemon.set_ops(Ops::hold);
  tern_ticket first = 0, second = 0;
  ASSERT_TERN_OK(tern_all_reduce(group, &middle, &first));
  EXPECT_EQ(tern_all_reduce(group, &middle, &second), TERN_ERR_WOULD_BLOCK);
  EXPECT_EQ(made(), 0u);
  std::vector<float> more(values.size() + 1);
  const tern_op larger = f32_op(more.data(), more.data(), more.size());
  ASSERT_TERN_OK(tern_all_reduce(group, &larger, &second)) << "nothing that ends helps it";
  EXPECT_EQ(made(), 1u);
  daemon.set_answers(Answers::refuse);
  tern_ticket third = 0;
  EXPECT_EQ(tern_all_reduce(group, &larger, &third), TERN_ERR_WOULD_BLOCK) << "the second may end";
}

TEST_F(CopiesBesideTheArena, OfABatchShareOne) {
  std::vector<std::vector<float>> values;
  std::vector<tern_op> ops;
  std::vector<tern_batch_op> list;
  ops.reserve(80);
  list.reserve(80);
  for (std::size_t i = 0; i < 80; ++i) values.emplace_back(kTestArenaBytes / 8 + 16 * i, i);
  for (auto& each : values) ops.push_back(f32_op(each.data(), each.data(), each.size()));
  for (const tern_op& op : ops) list.push_back({TERN_OP_ALL_REDUCE, 0, &op});
  tern_batch batch = TERN_BATCH_INIT;
  batch.ops = list.data();
  batch.count = list.size();
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_submit_batch(group, &batch, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  EXPECT_EQ(made(), 1u);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i].back(), static_cast<float>(i));
  }
}

// All are kept for later copies, until a program asks for more than it may have beside them.
TEST_F(CopiesBesideTheArena, GiveWayToTheProgramsOwn) {
  ASSERT_TERN_OK(reduce(2 * kTestArenaBytes));
  daemon.set_answers(Answers::refuse);
  void* memory = nullptr;
  EXPECT_EQ(tern_region_create(client, 4096, &memory), TERN_ERR_QUOTA_EXCEEDED);
  EXPECT_EQ(freed(), 1u);
  EXPECT_EQ(made(), 3u) << "the program's was asked for again";
}

TEST_F(CopiesBesideTheArena, OfADaemonThatDiesAreLostWithIt) {
  daemon.set_answers(Answers::hang_up);
  EXPECT_EQ(reduce(2 * kTestArenaBytes), TERN_ERR_DAEMON_LOST);
}

TEST_F(CopiesBesideTheArena, AreNotForWhatPassesFromRankToRank) {
  std::vector<float> values(kTestArenaBytes / 2);
  const tern_op op = f32_op(values.data(), nullptr, values.size());
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_send(group, &op, &ticket), TERN_ERR_OUT_OF_MEMORY);
  EXPECT_EQ(made(), 0u);
}

class NoRegions : public RegionsOfAProgram {
 protected:
  NoRegions() : RegionsOfAProgram(older()) {}
  static FakeOptions older() {
    FakeOptions options;
    options.regions = false;
    return options;
  }
};

TEST_F(NoRegions, OfAnOlderDaemonAreUnsupported) {
  void* memory = nullptr;
  EXPECT_EQ(tern_region_create(client, 4096, &memory), TERN_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(tern_error_detail()).find("larger arena_bytes"), std::string::npos);
}

TEST_F(NoRegions, ACopyThatFitsNoArenaSaysWhatToDo) {
  std::vector<float> values(kTestArenaBytes / 2);
  const tern_op op = f32_op(values.data(), values.data(), values.size());
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_ERR_OUT_OF_MEMORY);
  EXPECT_NE(std::string(tern_error_detail()).find("raise arena_bytes; ternd makes no region"),
            std::string::npos)
      << tern_error_detail();
}

}  // namespace
}  // namespace region_test
}  // namespace tern::testing
