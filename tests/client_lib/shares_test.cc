// Operations in which ranks have shares, or elements for each other: what the entry says, and what
// is refused. The fake daemon holds the ops.

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

using Submit = tern_status (*)(tern_group*, const tern_op*, tern_ticket*);

// Rank 1 of three.
class SharesOfThree : public ClientTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(connection.status, TERN_OK) << tern_error_detail();
    tern_group_id id{};
    ASSERT_TERN_OK(tern_group_mint(connection.client, &id));
    tern_join_options options = TERN_JOIN_OPTIONS_INIT;
    options.rank = 1;
    options.size = 3;
    ASSERT_TERN_OK(tern_group_join(connection.client, &id, &options, &group));
    client = connection.client;
    daemon.set_ops(Ops::hold);
  }

  shm::SubmitEntry entry_of(Submit submit, const tern_op& op) {
    tern_ticket ticket = 0;
    EXPECT_EQ(submit(group, &op, &ticket), TERN_OK) << tern_error_detail();
    daemon.await_entries(++submitted_);
    return daemon.seen().back().entry;
  }
  std::string refusal(Submit submit, const tern_op& op) {
    tern_ticket ticket = 0;
    EXPECT_EQ(submit(group, &op, &ticket), TERN_ERR_INVALID_ARGUMENT);
    return tern_error_detail();
  }
  std::vector<std::uint64_t> counts_in(const shm::SubmitEntry& entry, std::size_t count) {
    EXPECT_EQ(entry.flags, shm::kEntryHasCounts);
    std::vector<std::uint64_t> counts(count);
    // The first piece of the arena that a client takes is its begin.
    std::memcpy(counts.data(), arena_begin_ + entry.counts_offset, count * sizeof(std::uint64_t));
    return counts;
  }
  float* take(std::size_t count) {
    float* const values = connection.allocate<float>(count);
    if (arena_begin_ == nullptr) arena_begin_ = reinterpret_cast<std::byte*>(values);
    return values;
  }
  static std::uint64_t bytes_between(const shm::SubmitEntry& entry) {
    return entry.output_offset - entry.input_offset;
  }

  const std::uint64_t counts_[3] = {2, 3, 4};
  std::byte* arena_begin_ = nullptr;
  std::size_t submitted_ = 0;
};

TEST_F(SharesOfThree, CountsAreCopiedAndAddedUp) {
  float* const values = take(9);
  tern_op op = f32_op(values + 2, values, 0);
  op.counts = counts_;
  const shm::SubmitEntry entry = entry_of(tern_all_gather, op);
  EXPECT_EQ(entry.count, 9u);
  EXPECT_EQ(entry.kind, static_cast<std::uint16_t>(shm::OpKind::all_gather));
  EXPECT_EQ(counts_in(entry, 3), (std::vector<std::uint64_t>{2, 3, 4}));
}

TEST_F(SharesOfThree, EqualSharesNeedNoCounts) {
  float* const values = take(9);
  const shm::SubmitEntry entry = entry_of(tern_scatter, f32_op(nullptr, values, 9));
  EXPECT_EQ(entry.flags, 0u);
  EXPECT_EQ(entry.counts_offset, 0u);
}

TEST_F(SharesOfThree, InPlaceASharesPlaceIsItsOwnAmongAll) {
  float* const values = take(9);
  tern_op op = f32_op(values, nullptr, 9);
  op.counts = counts_;
  EXPECT_EQ(bytes_between(entry_of(tern_reduce_scatter, op)), 2 * sizeof(float));
  op = f32_op(nullptr, values, 9);
  op.counts = counts_;
  EXPECT_EQ(bytes_between(entry_of(tern_all_gather, op)) + 2 * sizeof(float), 0u);
  op = f32_op(values + 1, values, 9);
  op.counts = counts_;
  EXPECT_EQ(refusal(tern_all_gather, op), "input and output overlap in part");
}

// An empty array has an address too, which may be anywhere.
TEST_F(SharesOfThree, AShareWithoutElementsOverlapsNothing) {
  float* const values = take(9);
  const std::uint64_t counts[3] = {4, 0, 5};
  tern_op op = f32_op(values + 1, values, 9);
  op.counts = counts;
  EXPECT_EQ(entry_of(tern_all_gather, op).count, 9u);
}

TEST_F(SharesOfThree, ACopyOfBothHasEachElementOnce) {
  take(1);
  std::vector<float> all(9), share(3);
  tern_op op = f32_op(share.data(), all.data(), 9);
  op.counts = counts_;
  const shm::SubmitEntry entry = entry_of(tern_all_gather, op);
  EXPECT_EQ(entry.input_offset - entry.output_offset, 2 * sizeof(float));
}

TEST_F(SharesOfThree, WhoHasNoPartNeedsNoMemory) {
  float* const values = take(9);
  tern_op op = f32_op(values, nullptr, 9);
  op.root = 2;
  entry_of(tern_gather, op);
  entry_of(tern_reduce, op);
  op.input = nullptr;
  op.output = values;
  entry_of(tern_scatter, op);
  EXPECT_EQ(refusal(tern_gather, op), "input is NULL, and there is no output that it could be in");
  op.input = values;
  op.output = nullptr;
  EXPECT_EQ(refusal(tern_scatter, op), "output is NULL, and there is no input that it could be in");
}

TEST_F(SharesOfThree, PairsGiveWhatIsSentAndThenWhatIsReceived) {
  float* const input = take(9);
  float* const output = take(12);
  const std::uint64_t received[3] = {5, 3, 4};
  tern_op op = f32_op(input, output, 0);
  op.counts = counts_;
  op.receive_counts = received;
  const shm::SubmitEntry entry = entry_of(tern_all_to_all, op);
  EXPECT_EQ(entry.count, 0u);
  EXPECT_EQ(counts_in(entry, 6), (std::vector<std::uint64_t>{2, 3, 4, 5, 3, 4}));
}

TEST_F(SharesOfThree, PairsOutsideTheArenaAreCopiedApart) {
  take(1);
  std::vector<float> input(9), output(9);
  const shm::SubmitEntry entry = entry_of(tern_all_to_all, f32_op(input.data(), output.data(), 9));
  EXPECT_EQ(bytes_between(entry), 9 * sizeof(float));
}

TEST_F(SharesOfThree, WhatDoesNotFitIsRefused) {
  float* const values = take(20);
  EXPECT_EQ(refusal(tern_all_gather, f32_op(values, values, 10)),
            "count must be a multiple of the group's size, or give counts");
  tern_op op = f32_op(values, values, 8);
  op.counts = counts_;
  EXPECT_EQ(refusal(tern_gather, op), "the counts add up to more than count");
  const std::uint64_t huge[3] = {std::uint64_t{1} << 40, 1, 0};
  op.counts = huge;
  op.count = 0;
  EXPECT_EQ(refusal(tern_gather, op), "the counts add up to more than 2^40 elements");
  op.counts = counts_;
  EXPECT_EQ(refusal(tern_all_to_all, op),
            "counts and receive_counts must both be given, or neither");
  op.receive_counts = counts_;
  EXPECT_EQ(refusal(tern_gather, op), "the operation takes no receive_counts");
  EXPECT_EQ(refusal(tern_all_to_all, f32_op(values, nullptr, 9)),
            "the operation cannot be done in place; give both input and output");
  EXPECT_EQ(refusal(tern_all_to_all, f32_op(values, values, 9)),
            "input and output overlap in part");
  op = f32_op(values, values, 9);
  op.prescale = 2.0f;
  EXPECT_EQ(refusal(tern_scatter, op), "prescale is for reductions only");
}

}  // namespace
}  // namespace tern::testing
