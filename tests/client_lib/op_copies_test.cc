#include "client_lib/op_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "plan/plans.h"
#include "shm/wakeup.h"

namespace tern::client_lib {
namespace op_copies_test {
namespace {

constexpr std::uint32_t kLanes = 2;
constexpr std::uint64_t kLarge = 300'000;  // elements: two pieces and a rest
constexpr std::uint64_t kShort = 1000;
constexpr std::uint32_t kAllFeatures =
    shm::kFeatureProgress | shm::kFeaturePassProgress | shm::kFeatureSharesDown;

class OpCopiesTest : public ::testing::Test {
 protected:
  OpCopiesTest() : segment(*shm::Segment::create(kLanes, 8 << 20, 0)), arena(segment.arena()) {
    std::vector<Fd> fds;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      fds.push_back(*shm::make_eventfd());
      eventfds.push_back(fds.back().get());
    }
    lanes.emplace(segment, std::move(fds));
    copies.emplace(mutex, arena, *lanes, kAllFeatures);
    group->size = 3;
    group->rank = 1;
    group->lane_count = kLanes;
    group->chunk_bytes = 64 << 10;
    group->eager_bytes = 4096;
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i + 1);
  }

  // An op of memory outside that is being prepared, with its copies placed.
  Op& prepared(std::uint64_t count, const plan::Plan& plan = plan::kAllReduce) {
    return prepared(plan, input.data(), output.data(), count);
  }
  Op& prepared(const plan::Plan& plan, const void* from, void* to, std::uint64_t count) {
    OpRequest request;
    request.plan = &plan;
    request.group = group;
    request.input = from;
    request.output = to;
    request.count = count;
    Op& op = ops.emplace_back();
    op.state = Op::State::preparing;
    op.group = group;
    op.lanes = 0b11;
    op.passes = plan.passes();
    op.extents = request.extents();
    op.input_bytes = request.input_bytes();
    op.output_bytes = request.output_bytes();
    op.element_bytes = sizeof(float);
    arena.begin_submission();
    const Status placed = arena.place_copies(request, op);
    EXPECT_TRUE(placed) << placed.error().text;
    copies->place_progress(request, op);
    return op;
  }
  // As a batch.
  static Op& chained(const std::vector<Op*>& all) {
    for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i]->next = all[i + 1];
    return *all[0];
  }
  bool is_copied(const Op& op) const {
    return std::memcmp(op.copied + op.input_copy, op.input, op.input_bytes) == 0;
  }
  // What lanes have put in the place of the output.
  static std::span<float> results(const Op& op) {
    return {reinterpret_cast<float*>(op.copied + op.output_copy), op.output_bytes / sizeof(float)};
  }

  shm::Segment segment;
  ArenaMemory arena;
  std::mutex mutex;
  std::vector<int> eventfds;
  std::optional<SubmissionLanes> lanes;
  std::optional<OpCopies> copies;
  std::shared_ptr<GroupState> group = std::make_shared<GroupState>();
  std::vector<float> input = std::vector<float>(kLarge), output = std::vector<float>(kLarge);
  std::deque<Op> ops;
};

// ---- Which go on while lanes work

TEST_F(OpCopiesTest, LargeOnesDo) {
  const Op& op = prepared(kLarge);
  ASSERT_TRUE(op.progress.exists());
  EXPECT_EQ(op.progress_flags, shm::kEntryHasProgress);
  EXPECT_EQ(op.progress.input_bytes(), 0u);
  EXPECT_EQ(op.progress.shape().lanes, kLanes);
  EXPECT_GE(op.progress.shape().records, kLarge * sizeof(float) / group->chunk_bytes + 1)
      << "one lane may have all chunks";
}

TEST_F(OpCopiesTest, ShortOnesDoNot) {
  EXPECT_FALSE(prepared(kShort).progress.exists());
  group->eager_bytes = kLarge * sizeof(float);
  const Op& op = prepared(kLarge);
  EXPECT_FALSE(op.progress.exists()) << "it travels with its announcement";
  EXPECT_EQ(op.progress_flags, 0);
}

TEST_F(OpCopiesTest, OfADaemonThatDoesNotKnowTheyDoNot) {
  copies.emplace(mutex, arena, *lanes, shm::kFeaturePassProgress | shm::kFeatureSharesDown);
  EXPECT_FALSE(prepared(kLarge).progress.exists());
  EXPECT_TRUE(prepared(kLarge, plan::kSend).progress.exists());
  copies.emplace(mutex, arena, *lanes, shm::kFeatureProgress);
  EXPECT_FALSE(prepared(kLarge, plan::kSend).progress.exists());
  EXPECT_TRUE(prepared(kLarge).progress.exists());
}

TEST_F(OpCopiesTest, MemoryInTheArenaNeedsNone) {
  void* const inside = *arena.allocate(kLarge * sizeof(float));
  EXPECT_FALSE(prepared(plan::kAllReduce, inside, inside, kLarge).progress.exists());
  const Op& to_arena = prepared(plan::kAllReduce, input.data(), inside, kLarge);
  ASSERT_TRUE(to_arena.progress.exists());
  EXPECT_EQ(to_arena.progress.shape().records, 0u) << "no result is taken";
  const Op& from_arena = prepared(plan::kAllReduce, inside, output.data(), kLarge);
  ASSERT_TRUE(from_arena.progress.exists());
  EXPECT_EQ(from_arena.progress.input_bytes(), kLarge * sizeof(float)) << "all of it is there";
}

TEST_F(OpCopiesTest, SharesComeDownwardsToADaemonThatKnows) {
  constexpr auto kDown = shm::kEntryHasProgress | shm::kEntrySharesDown;
  EXPECT_EQ(prepared(kLarge, plan::kReduceScatter).progress_flags, kDown);
  EXPECT_EQ(prepared(kLarge, plan::kAllGather).progress_flags, shm::kEntryHasProgress);
  copies.emplace(mutex, arena, *lanes, shm::kFeatureProgress);
  EXPECT_EQ(prepared(kLarge, plan::kReduceScatter).progress_flags, shm::kEntryHasProgress);
}

// ---- The input

TEST_F(OpCopiesTest, WhatHasNoProgressIsCopiedFirst) {
  Op& first = chained({&prepared(kShort), &prepared(kLarge), &prepared(kShort)});
  std::unique_lock lock(mutex);
  copies->copy_first(first, lock);
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_TRUE(is_copied(ops[0]));
  EXPECT_FALSE(is_copied(ops[1]));
  EXPECT_TRUE(is_copied(ops[2]));
}

TEST_F(OpCopiesTest, TheRestIsToBeFilledInTheOrderOfTheSubmission) {
  void* const inside = *arena.allocate(kLarge * sizeof(float));
  Op& first =
      chained({&prepared(kShort), &prepared(kLarge),
               &prepared(plan::kAllReduce, inside, output.data(), kLarge), &prepared(kLarge)});
  EXPECT_EQ(OpCopies::to_fill(first), &ops[1]);
  EXPECT_EQ(ops[1].next_to_fill, &ops[3]) << "the one between has its input in the arena";
  EXPECT_EQ(ops[3].next_to_fill, nullptr);
  EXPECT_FALSE(ops[0].copying);
  EXPECT_TRUE(ops[1].copying);
  EXPECT_FALSE(ops[2].copying);
  EXPECT_TRUE(ops[3].copying);
  EXPECT_EQ(OpCopies::to_fill(ops[3]), &ops[3]);
  ops[0].next = nullptr;
  EXPECT_EQ(OpCopies::to_fill(ops[0]), nullptr);
}

TEST_F(OpCopiesTest, FillsAndTellsLanesThatAllIsThere) {
  Op& first = chained({&prepared(kLarge), &prepared(kLarge)});
  copies->fill(OpCopies::to_fill(first));
  for (const Op& op : ops) {
    EXPECT_TRUE(is_copied(op));
    EXPECT_EQ(op.progress.input_bytes(), kLarge * sizeof(float));
    EXPECT_FALSE(op.copying);
    EXPECT_EQ(op.next_to_fill, nullptr);
  }
  copies->fill(nullptr);
}

TEST_F(OpCopiesTest, LanesOfTheOpThatSleepAreWoken) {
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) shm::announce_sleep(segment.lane_rings(lane));
  Op& op = prepared(kLarge);
  op.lanes = 0b10;
  copies->fill(OpCopies::to_fill(op));
  EXPECT_FALSE(shm::drain_eventfd(eventfds[0]));
  EXPECT_TRUE(shm::drain_eventfd(eventfds[1]));
}

TEST_F(OpCopiesTest, SharesThatComeDownwardsAllCome) {
  Op& equal = prepared(kLarge, plan::kReduceScatter);
  copies->fill(OpCopies::to_fill(equal));
  EXPECT_TRUE(is_copied(equal));
  EXPECT_EQ(equal.progress.input_bytes(), kLarge * sizeof(float));
  // With counts, one of which is nothing.
  group->size = 4;
  Op& counted = prepared(kLarge, plan::kReduceScatter);
  const std::vector<std::uint64_t> counts = {kLarge - 9, 0, 4, 5};
  auto* const copy = static_cast<std::uint64_t*>(*arena.allocate(4 * sizeof(std::uint64_t)));
  std::copy(counts.begin(), counts.end(), copy);
  counted.counts_copy =
      static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(copy) - arena.at(0));
  copies->fill(OpCopies::to_fill(counted));
  EXPECT_TRUE(is_copied(counted));
  EXPECT_EQ(counted.progress.input_bytes(), kLarge * sizeof(float));
}

// ---- The output

TEST_F(OpCopiesTest, TakesWhatIsDeliveredOfOneOpAtATime) {
  Op& first = chained({&prepared(kLarge), &prepared(kLarge)});
  for (Op& op : ops) {
    op.state = Op::State::running;
    std::fill_n(results(op).begin(), kLarge, 9.0f);
  }
  std::unique_lock lock(mutex);
  EXPECT_FALSE(OpCopies::take_deliveries(&first, lock));
  ops[1].progress.deliver(1, 0, {40, 80});
  EXPECT_TRUE(OpCopies::take_deliveries(&first, lock));
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_FALSE(ops[1].copying);
  EXPECT_EQ(output[9], 0.0f);
  EXPECT_EQ(output[10], 9.0f);
  EXPECT_EQ(output[29], 9.0f);
  EXPECT_EQ(output[30], 0.0f);
  EXPECT_FALSE(OpCopies::take_deliveries(&first, lock)) << "nothing new";
  EXPECT_FALSE(OpCopies::take_deliveries(nullptr, lock));
}

TEST_F(OpCopiesTest, WhoeverCopiesOrHasEndedIsLeftAlone) {
  Op& op = prepared(kLarge);
  op.progress.deliver(0, 0, {0, 80});
  std::unique_lock lock(mutex);
  op.state = Op::State::ended;
  EXPECT_FALSE(OpCopies::take_deliveries(&op, lock));
  op.state = Op::State::running;
  op.copying = true;
  EXPECT_FALSE(OpCopies::take_deliveries(&op, lock)) << "another thread is at it";
  op.copying = false;
  EXPECT_TRUE(OpCopies::take_deliveries(&op, lock));
}

TEST_F(OpCopiesTest, AtTheEndTheRestIsCopied) {
  Op& op = prepared(kLarge);
  op.state = Op::State::running;
  std::fill_n(results(op).begin(), kLarge, 9.0f);
  op.progress.deliver(0, 0, {0, 80});
  std::unique_lock lock(mutex);
  ASSERT_TRUE(OpCopies::take_deliveries(&op, lock));
  lock.unlock();
  output[5] = -1.0f;  // what was taken is the program's
  copies->copy_rest(op);
  EXPECT_EQ(output[5], -1.0f);
  output[5] = 9.0f;
  EXPECT_EQ(output, std::vector<float>(kLarge, 9.0f));
}

TEST_F(OpCopiesTest, WithoutProgressAllIsTheRest) {
  Op& op = prepared(kShort);
  std::fill_n(results(op).begin(), kShort, 9.0f);
  copies->copy_rest(op);
  EXPECT_TRUE(std::all_of(output.begin(), output.begin() + kShort, [](float v) { return v == 9; }));
  EXPECT_EQ(output[kShort], 0.0f);
}

TEST_F(OpCopiesTest, OfARecvNoMoreThanCameIsCopied) {
  for (const std::uint64_t room : {kShort, kLarge}) {
    std::fill(output.begin(), output.end(), 0.0f);
    Op& op = prepared(room, plan::kRecv);
    std::fill_n(results(op).begin(), room, 9.0f);
    op.what_came.elements = 10;
    copies->copy_rest(op);
    EXPECT_EQ(output[9], 9.0f);
    EXPECT_EQ(output[10], 0.0f);
    op.what_came.elements = ~std::uint64_t{0} / 8;  // foreign: more than there is room for
    copies->copy_rest(op);
    EXPECT_EQ(output[room - 1], 9.0f);
  }
}

TEST_F(OpCopiesTest, AResultInTheArenaIsWhereItIs) {
  float* const inside = static_cast<float*>(*arena.allocate(kShort * sizeof(float)));
  inside[3] = 5.0f;
  copies->copy_rest(prepared(plan::kAllReduce, input.data(), inside, kShort));
  EXPECT_EQ(inside[3], 5.0f);
}

}  // namespace
}  // namespace op_copies_test
}  // namespace tern::client_lib
