#include "daemon/lane/block_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "daemon/lane/block_codec.h"
#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::block_path_test {
namespace {

// Keeps what it is given until it is told to complete it, or to drain.
class HeldExecutor final : public BlockExecutor {
 public:
  void start(BlockPath& path, std::uint32_t slot) override {
    EXPECT_EQ(std::count(held.begin(), held.end(), slot), 0) << "a slot is given out twice";
    held.push_back(slot);
    EXPECT_LE(held.size(), path.in_flight());
  }
  int poll() override { return 0; }
  void drain(BlockPath& path) override {
    ++drains;
    while (!held.empty()) complete(path, 0);
  }
  void complete(BlockPath& path, std::size_t place) {
    const std::uint32_t slot = held[place];
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
    BlockCompletion completion;
    completion.bytes = 100 + path.request(slot).number;
    path.complete(slot, completion);
  }

  std::vector<std::uint32_t> held;
  int drains = 0;
};

struct Completed {
  std::uint32_t number = 0;
  std::uint32_t bytes = 0;
  bool operator==(const Completed&) const = default;
};

class BlockPathTest : public ::testing::Test, protected BlockSink {
 protected:
  static collective::GroupShape shape() {
    collective::GroupShape shape;
    shape.eager_bytes = 64;
    shape.max_ops_in_flight = 2;
    shape.ranks = {{0, 1}, {2}};
    return shape;
  }
  static BlockRequest numbered(std::uint32_t number) {
    BlockRequest request;
    request.number = number;
    return request;
  }
  void on_block(const BlockRequest& request, const BlockCompletion& completion) override {
    if (then) std::exchange(then, nullptr)();
    completed.push_back({request.number, completion.bytes});
  }
  void submit(BlockPath& path, std::initializer_list<std::uint32_t> numbers) {
    for (const std::uint32_t number : numbers) path.submit(numbered(number));
  }

  collective::GroupOps ops{shape()};
  LaneOps lane_ops{ops.table().slots(), 2, 4};
  EagerRoom places = *EagerRoom::make(shape());
  EagerInputs eager{shape(), ops.table().slots(), places.announced()};
  BlockCodec codec{ops, lane_ops, eager, {}};
  HeldExecutor held;
  std::function<void()> then;  // once, when the next block is done
  std::vector<Completed> completed;
};

TEST_F(BlockPathTest, ABlockIsOutUntilItsExecutorCompletesIt) {
  BlockPath path(codec, *this, 4);
  path.use(held);
  submit(path, {1, 2});
  EXPECT_EQ(path.in_flight(), 2u);
  EXPECT_TRUE(completed.empty());
  held.complete(path, 0);
  EXPECT_EQ(path.in_flight(), 1u);
  EXPECT_EQ(completed, (std::vector<Completed>{{1, 101}}));
}

TEST_F(BlockPathTest, ACompletionInAnotherOrderCarriesItsOwnRequest) {
  BlockPath path(codec, *this, 4);
  path.use(held);
  submit(path, {1, 2, 3});
  held.complete(path, 2);
  held.complete(path, 0);
  held.complete(path, 0);
  EXPECT_EQ(completed, (std::vector<Completed>{{3, 103}, {1, 101}, {2, 102}}));
}

TEST_F(BlockPathTest, SlotsAreUsedAgain) {
  BlockPath path(codec, *this, 2);
  path.use(held);
  submit(path, {1, 2});
  for (std::uint32_t number = 3; number < 10; ++number) {
    held.complete(path, number % 2);
    submit(path, {number});
  }
  EXPECT_EQ(held.drains, 0);
  EXPECT_EQ(path.in_flight(), 2u);
}

TEST_F(BlockPathTest, WithAllSlotsTakenItWaitsForTheExecutor) {
  BlockPath path(codec, *this, 2);
  path.use(held);
  submit(path, {1, 2});
  EXPECT_EQ(held.drains, 0);
  submit(path, {3});
  EXPECT_EQ(held.drains, 1);
  EXPECT_EQ(completed, (std::vector<Completed>{{1, 101}, {2, 102}}));
  EXPECT_EQ(path.in_flight(), 1u);
}

TEST_F(BlockPathTest, WhoIsToldOfABlockMaySubmitIntoItsSlot) {
  BlockPath path(codec, *this, 1);
  path.use(held);
  submit(path, {1});
  then = [&] { submit(path, {2}); };
  held.complete(path, 0);
  EXPECT_EQ(path.in_flight(), 1u);
  held.complete(path, 0);
  EXPECT_EQ(completed, (std::vector<Completed>{{1, 101}, {2, 102}}));
  EXPECT_EQ(held.drains, 0);
}

TEST_F(BlockPathTest, WhatIsSubmittedDuringADrainIsDrainedToo) {
  BlockPath path(codec, *this, 1);
  path.use(held);
  submit(path, {1});
  then = [&] { submit(path, {2}); };
  submit(path, {3});
  EXPECT_EQ(completed, (std::vector<Completed>{{1, 101}, {2, 102}}));
  held.complete(path, 0);
  EXPECT_EQ(completed.back(), (Completed{3, 103}));
}

TEST_F(BlockPathTest, TheProcessorCarriesARequestOutWithinSubmit) {
  const collective::OpId op = lane_test::submit(ops, {0, 0}, lane_test::all_reduce_of(3));
  std::vector<float> first = {1, 2, 3}, second = {10, 20, 30}, block(16);
  const auto region_of = [](std::vector<float>& values) {
    return Region{std::as_writable_bytes(std::span(values)).data(), values.size() * sizeof(float)};
  };
  const Region inputs[] = {region_of(first), region_of(second)};
  const Region room = region_of(block);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    OpRank slot;
    slot.extents = {{0, 3}, {0, 3}};
    slot.input = {&inputs[rank], 0, inputs[rank].bytes};
    lane_ops.join(op, rank, slot);
  }
  CodecRoom codec_room(4096);
  TraceRing trace;
  LaneCounters counters;
  ManualClock clock;
  codec.blocks().attach(codec_room, trace, counters, clock);
  HostExecutor host;
  BlockPath path(codec, *this, 1);
  path.use(host);
  BlockRequest request = numbered(7);
  request.verb = BlockVerb::gather;
  request.op = op;
  request.block = {&room, 0, room.bytes};
  path.submit(request);
  path.submit(request);
  EXPECT_EQ(completed, (std::vector<Completed>(2, {7, 12})));
  EXPECT_EQ(path.in_flight(), 0u);
  block.resize(3);
  EXPECT_EQ(block, (std::vector<float>{11, 22, 33}));
}

}  // namespace
}  // namespace tern::daemon::block_path_test
