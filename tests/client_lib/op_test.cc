#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <string>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

class Operations : public ClientTest {
 protected:
  tern_status reduce(const tern_op& op) {
    tern_ticket ticket = 0;
    const tern_status status = tern_all_reduce(group, &op, &ticket);
    return status != TERN_OK ? status : tern_wait(client, ticket, TERN_FOREVER);
  }
};

// Bit for bit. `place` may be aligned for nothing.
bool holds(const void* place, std::span<const float> expected) {
  const auto bytes = std::as_bytes(expected);
  return std::memcmp(place, bytes.data(), bytes.size()) == 0;
}

// Large enough for every lane to have chunks.
constexpr std::uint64_t kCount = 5000;

TEST_F(Operations, EveryPlaceOfInputAndOutputGivesTheSame) {
  std::vector<float> expected(kCount);
  std::iota(expected.begin(), expected.end(), 1.0f);
  std::vector<float> outside_in(kCount);
  std::vector<float> outside_out(kCount);
  float* arena_in = connection.allocate<float>(kCount);
  float* arena_out = connection.allocate<float>(kCount);
  float* unaligned = reinterpret_cast<float*>(connection.allocate<char>(4 * kCount + 4) + 2);
  for (float* input : {outside_in.data(), arena_in, unaligned}) {
    for (float* output : {outside_out.data(), arena_out, input}) {
      std::memcpy(input, expected.data(), 4 * kCount);
      if (output != input) std::memset(output, 0, 4 * kCount);
      ASSERT_EQ(reduce(f32_op(input, output, kCount)), TERN_OK) << tern_error_detail();
      EXPECT_TRUE(holds(output, expected));
      EXPECT_TRUE(holds(input, expected));
    }
  }
}

TEST_F(Operations, NullMeansInPlace) {
  std::vector<float> values(kCount, 3.0f);
  EXPECT_EQ(reduce(f32_op(values.data(), nullptr, kCount)), TERN_OK);
  EXPECT_EQ(reduce(f32_op(nullptr, values.data(), kCount)), TERN_OK);
  EXPECT_EQ(values, std::vector<float>(kCount, 3.0f));
  EXPECT_EQ(reduce(f32_op(nullptr, nullptr, kCount)), TERN_ERR_INVALID_ARGUMENT);
}

TEST_F(Operations, ArenaMemoryIsUsedInPlace) {
  float* input = connection.allocate<float>(16);
  float* output = connection.allocate<float>(16);
  ASSERT_EQ(reduce(f32_op(input, output, 16)), TERN_OK);
  const shm::SubmitEntry entry = daemon.seen().at(0).entry;
  EXPECT_EQ(entry.output_offset - entry.input_offset,
            static_cast<std::uint64_t>(output - input) * sizeof(float));
}

TEST_F(Operations, RefusesPartialOverlap) {
  float* values = connection.allocate<float>(64);
  EXPECT_EQ(reduce(f32_op(values, values + 1, 32)), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(reduce(f32_op(values + 31, values, 32)), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(reduce(f32_op(values + 32, values, 32)), TERN_OK);
}

TEST_F(Operations, RefusesWhatHasNoMeaning) {
  float values[4] = {};
  const tern_op good = f32_op(values, values, 4);
  const auto refused = [&](auto change, tern_status code) {
    tern_op op = good;
    change(op);
    EXPECT_EQ(reduce(op), code);
  };
  const int bad_enum = 99;
  const auto invalid = TERN_ERR_INVALID_ARGUMENT;
  refused([](tern_op& op) { op.struct_size = 16; }, invalid);
  refused([&](tern_op& op) { std::memcpy(&op.dtype, &bad_enum, 4); }, invalid);
  refused([&](tern_op& op) { std::memcpy(&op.reduction, &bad_enum, 4); }, invalid);
  refused([](tern_op& op) { op.dtype = TERN_I32, op.reduction = TERN_AVERAGE; }, invalid);
  refused([](tern_op& op) { op.dtype = TERN_I32, op.prescale = 0.5f; }, invalid);
  refused([](tern_op& op) { op.prescale = std::nanf(""); }, invalid);
  refused([](tern_op& op) { op.state_scale = std::numeric_limits<float>::infinity(); }, invalid);
  refused([](tern_op& op) { op.count = ~std::uint64_t{0}; }, invalid);
  refused([](tern_op& op) { op.reserved = 1; }, invalid);
  refused([](tern_op& op) { op.wait_event = 1; }, TERN_ERR_UNSUPPORTED);
  refused([](tern_op& op) { op.signal_event = 1; }, TERN_ERR_UNSUPPORTED);
  const std::uint64_t counts[1] = {4};
  refused([&](tern_op& op) { op.counts = counts; }, invalid);
  refused([](tern_op& op) { op.recipe = ""; }, TERN_ERR_BAD_RECIPE);
  const std::string recipe(48, 'r');
  refused([&](tern_op& op) { op.recipe = recipe.c_str(); }, TERN_ERR_BAD_RECIPE);
  refused([&](tern_op& op) { op.recipe = recipe.c_str() + 1; }, TERN_OK);
  EXPECT_EQ(tern_all_reduce(group, nullptr, nullptr), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_all_reduce(nullptr, &good, nullptr), TERN_ERR_INVALID_ARGUMENT);
}

// Its struct ends where the next field begins: what lies there is not of the op.
TEST_F(Operations, AProgramOfTheFirstHeaderRunsUnchanged) {
  constexpr std::uint32_t kFirstOp = 96;
  struct {
    tern_op op;
  } passed{f32_op(connection.allocate<float>(4), nullptr, 4)};
  passed.op.struct_size = kFirstOp;
  std::memset(reinterpret_cast<std::byte*>(&passed.op) + kFirstOp, 0xee,
              sizeof(tern_op) - kFirstOp);
  EXPECT_EQ(reduce(passed.op), TERN_OK) << tern_error_detail();
}

TEST_F(Operations, TheEntryCarriesTheOp) {
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.name = "w";
  options.count = 4;
  options.role = TERN_DELTA;
  options.dtype = TERN_F16;
  options.priority = 9;
  tern_tensor* tensor = nullptr;
  ASSERT_TERN_OK(tern_tensor_declare(group, &options, &tensor));
  std::uint16_t values[4] = {};
  tern_op op = TERN_OP_INIT;
  op.tensor = tensor;
  op.output = values;
  op.reduction = TERN_AVERAGE;
  op.state_scale = 2.0f;
  op.recipe = "3lc:s=1";
  ASSERT_EQ(reduce(op), TERN_OK) << tern_error_detail();
  op.priority = -1;
  op.count = 4;
  ASSERT_EQ(reduce(op), TERN_OK);
  op.count = 5;
  EXPECT_EQ(reduce(op), TERN_ERR_INVALID_ARGUMENT);
  const shm::SubmitEntry entry = daemon.seen().at(0).entry;
  EXPECT_EQ(entry.kind, 1);
  EXPECT_EQ(entry.dtype, 2);
  EXPECT_EQ(entry.reduction, 1);
  EXPECT_EQ(entry.role, 2);
  EXPECT_EQ(entry.group, 1u);
  EXPECT_NE(entry.tensor, 0u);
  EXPECT_EQ(entry.count, 4u);
  EXPECT_EQ(entry.priority, 9);
  EXPECT_EQ(entry.prescale_bits, 0x3f800000u);
  EXPECT_EQ(entry.state_scale_bits, 0x40000000u);
  EXPECT_STREQ(entry.recipe, "3lc:s=1");
  EXPECT_EQ(daemon.seen().at(1).entry.priority, -1);
}

TEST_F(Operations, SequencesCountPerTensorAndPerGroup) {
  tern_tensor* first = declare("first", 4);
  tern_tensor* second = declare("second", 4);
  float values[4] = {};
  tern_ticket ticket = 0;
  const auto run = [&](tern_tensor* tensor, bool broadcast) {
    tern_op op = f32_op(values, values, 4);
    op.tensor = tensor;
    ASSERT_TERN_OK(broadcast ? tern_broadcast(group, &op, &ticket)
                             : tern_all_reduce(group, &op, &ticket));
    ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  };
  run(first, false);
  run(nullptr, false);
  run(first, true);
  run(second, true);
  ASSERT_TERN_OK(tern_barrier(group, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  run(nullptr, true);
  run(first, false);
  std::vector<std::uint64_t> sequences;
  for (const Seen& seen : daemon.seen()) sequences.push_back(seen.entry.sequence);
  EXPECT_EQ(sequences, (std::vector<std::uint64_t>{0, 0, 1, 0, 1, 2, 2}));
}

TEST_F(Operations, EveryLaneWithAChunkGetsAnEntryAndNoOther) {
  std::vector<float> values(3000);
  for (std::uint64_t sequence = 0; sequence < 6; ++sequence) {
    const std::uint64_t count = sequence % 2 == 0 ? 3000 : 3;
    ASSERT_EQ(reduce(f32_op(values.data(), nullptr, count)), TERN_OK);
    std::set<std::uint32_t> lanes;
    for (const Seen& seen : daemon.seen()) {
      if (seen.entry.sequence == sequence) lanes.insert(seen.lane);
    }
    if (count == 3000) {
      EXPECT_EQ(lanes, (std::set<std::uint32_t>{0, 1}));
    } else {
      EXPECT_EQ(lanes, (std::set<std::uint32_t>{static_cast<std::uint32_t>(sequence % 2)}));
    }
  }
}

TEST_F(Operations, BroadcastNeedsAnInputAtTheRootOnly) {
  float values[4] = {1, 2, 3, 4};
  tern_op op = f32_op(values, nullptr, 4);
  tern_ticket ticket = 0;
  op.root = 1;
  EXPECT_EQ(tern_broadcast(group, &op, &ticket), TERN_ERR_INVALID_ARGUMENT);
  op.root = -1;
  EXPECT_EQ(tern_broadcast(group, &op, &ticket), TERN_ERR_INVALID_ARGUMENT);
  op.root = 0;
  float output[4] = {};
  op.output = output;
  ASSERT_TERN_OK(tern_broadcast(group, &op, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  EXPECT_EQ(output[3], 4.0f);
}

TEST_F(Operations, AnOpWithoutElementsEnds) {
  EXPECT_EQ(reduce(f32_op(nullptr, nullptr, 0)), TERN_OK);
}

TEST_F(Operations, ATensorOfAnotherGroupIsRefused) {
  tern_tensor* tensor = declare("t", 4);
  tern_group* other = nullptr;
  ASSERT_TERN_OK(connection.join(&other));
  float values[4] = {};
  tern_op op = f32_op(values, values, 4);
  op.tensor = tensor;
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_all_reduce(other, &op, &ticket), TERN_ERR_INVALID_ARGUMENT);
}

TEST_F(Operations, CopiesThatDoNotFitSayWhatToDo) {
  std::vector<float> large(kTestArenaBytes / 4 + 1);
  daemon.set_answers(Answers::refuse);
  EXPECT_EQ(reduce(f32_op(large.data(), large.data(), large.size())), TERN_ERR_OUT_OF_MEMORY);
  EXPECT_NE(std::string(tern_error_detail())
                .find("free tensors or raise arena_bytes; ternd makes "
                      "no region for it: only 3 widgets are allowed"),
            std::string::npos)
      << tern_error_detail();
  daemon.set_answers(Answers::normal);
  daemon.set_ops(Ops::hold);
  std::vector<float> half(kTestArenaBytes / 4 * 3 / 4);
  tern_op op = f32_op(half.data(), half.data(), half.size());
  tern_ticket first = 0;
  tern_ticket second = 0;
  ASSERT_TERN_OK(tern_all_reduce(group, &op, &first));
  EXPECT_EQ(tern_all_reduce(group, &op, &second), TERN_ERR_WOULD_BLOCK);
  daemon.await_entries(2);
  daemon.complete_held();
  ASSERT_TERN_OK(tern_wait(client, first, TERN_FOREVER));
  daemon.set_ops(Ops::complete);
  ASSERT_TERN_OK(tern_all_reduce(group, &op, &second));
  ASSERT_TERN_OK(tern_wait(client, second, TERN_FOREVER));
}

class OneLaneTensors : public ClientTest {
 protected:
  OneLaneTensors() : ClientTest({.next_sequence = 41, .one_lane = true}) {}
};

TEST_F(OneLaneTensors, StayOnOneLaneAndGoOnCounting) {
  tern_tensor* tensor = declare("t", kCount);
  std::vector<float> values(kCount, 2.0f);
  tern_op op = f32_op(values.data(), nullptr, 0);
  op.tensor = tensor;
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_all_reduce(group, &op, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  ASSERT_EQ(daemon.seen().size(), 1u);
  EXPECT_EQ(daemon.seen()[0].entry.sequence, 41u);
}

}  // namespace
}  // namespace tern::testing
