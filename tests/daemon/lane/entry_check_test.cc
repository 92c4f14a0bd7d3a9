#include "daemon/lane/entry_check.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "plan/plans.h"
#include "shm/encoded_by.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kArena = 1 << 20;

class EntryCheck : public testing::Test {
 protected:
  EntryCheck() {
    group_.ranks = {{0, 1}, {2}};
    group_.chunk_bytes = 4096;
    group_.lanes = 2;
    std::memset(&entry_, 0, sizeof(entry_));
    entry_.kind = static_cast<std::uint16_t>(shm::OpKind::all_reduce);
    entry_.count = 10'000;
    entry_.prescale_bits = std::bit_cast<std::uint32_t>(1.0f);
    entry_.state_scale_bits = std::bit_cast<std::uint32_t>(1.0f);
    tensor_.id = 7;
    tensor_.count = 10'000;
    tensor_.role = Role::gradient;
  }

  CheckedEntry check(const TensorState* tensor = nullptr, std::uint32_t rank = 1) const {
    return check_entry(entry_, {group_, 3, rank, kArena, tensor});
  }
  std::string problem(const TensorState* tensor = nullptr) const {
    const CheckedEntry checked = check(tensor);
    EXPECT_EQ(checked.plan == nullptr, checked.problem != nullptr);
    return checked.problem != nullptr ? checked.problem : "";
  }

  collective::GroupShape group_;
  shm::SubmitEntry entry_;
  TensorState tensor_;
};

TEST_F(EntryCheck, ASoundEntryHasAPlanAndTheLanesOfItsChunks) {
  const CheckedEntry checked = check();
  EXPECT_EQ(checked.problem, nullptr);
  EXPECT_EQ(checked.plan, &plan::kAllReduce);
  EXPECT_EQ(checked.lanes, 0b11u);
}

TEST_F(EntryCheck, ASendIsForTheLaneOfItsTagAndNamesARank) {
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::send);
  entry_.root = 2;
  for (entry_.sequence = 0; entry_.sequence < 20; ++entry_.sequence) {
    const auto tag = static_cast<std::uint32_t>(entry_.sequence);
    group_.lane = shm::lane_of_tag(2, tag, 2);
    EXPECT_EQ(problem(), "");
    EXPECT_EQ(check().lanes, 1u << group_.lane);
    group_.lane = 1 - group_.lane;
    EXPECT_EQ(problem(), "the operation does not belong on this lane");
  }
  group_.lane = shm::lane_of_tag(2, 0, 2);
  entry_.sequence = std::uint64_t{1} << 32;
  EXPECT_EQ(problem(), "a tag has 32 bits");
  entry_.sequence = 0;
  entry_.root = 3;
  EXPECT_EQ(problem(), "the peer of a send must be 0..size-1");
  entry_.root = 2;
  entry_.count = kArena + 1;
  EXPECT_EQ(problem(), "the tensor is not inside the client's arena");
  entry_.count = std::uint64_t{1} << 40;
  EXPECT_EQ(problem(), "the tensor is not inside the client's arena");
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::recv);
  EXPECT_EQ(problem(), "the tensor is not inside the client's arena");
}

TEST_F(EntryCheck, EveryKindWithoutAPlanIsRefused) {
  for (const int kind : {0, 4, 8, 16, 0xffff}) {
    entry_.kind = static_cast<std::uint16_t>(kind);
    EXPECT_EQ(problem(), "unknown kind of operation") << kind;
  }
}

TEST_F(EntryCheck, EachUnsoundFieldIsNamed) {
  using Change = std::function<void(shm::SubmitEntry&)>;
  const std::vector<std::pair<Change, std::string>> changes = {
      {[](auto& e) { e.dtype = 17; }, "unknown dtype"},
      {[](auto& e) { e.reduction = 8; }, "unknown reduction"},
      {[](auto& e) { e.role = 4; }, "unknown role"},
      {[](auto& e) { e.flags = 16; }, "a reserved field is not zero"},
      {[](auto& e) { e.flags = shm::kEntryHasBlocks; },
       "the tensor was not declared with client_blocks"},
      {[](auto& e) { e.flags = shm::kEntryHasProgress | shm::kEntrySharesDown; },
       "the input does not come share by share"},
      {[](auto& e) {
         e.kind = static_cast<std::uint16_t>(shm::OpKind::reduce_scatter);
         e.flags = shm::kEntrySharesDown;
         e.count = 6;
       },
       "the entry says how its input comes, which is not copied"},
      {[](auto& e) { e.progress_offset = 64; }, "a reserved field is not zero"},
      {[](auto& e) { e.progress_records = 1; }, "a reserved field is not zero"},
      {[](auto& e) { e.flags = shm::kEntryHasProgress, e.progress_offset = 32; },
       "the progress of copies is not on a cache line inside the client's arena"},
      {[](auto& e) { e.flags = shm::kEntryHasProgress, e.progress_offset = ~std::uint64_t{63}; },
       "the progress of copies is not on a cache line inside the client's arena"},
      {[](auto& e) { e.flags = shm::kEntryHasProgress, e.progress_records = 4097; },
       "too many records of deliveries"},
      {[](auto& e) { e.reserved0 = 1; }, "a reserved field is not zero"},
      {[](auto& e) { e.counts_offset = 1; }, "a reserved field is not zero"},
      {[](auto& e) { e.wait_event = 1; }, "a reserved field is not zero"},
      {[](auto& e) { e.signal_event = 1; }, "a reserved field is not zero"},
      {[](auto& e) { e.reserved2[5] = 1; }, "a reserved field is not zero"},
      {[](auto& e) { e.input_region = 1; }, "unknown memory region"},
      {[](auto& e) { e.output_region = 1; }, "unknown memory region"},
      {[](auto& e) { e.count = plan::kMaxElements + 1; }, "count is too large"},
      {[](auto& e) { e.root = 3; }, "root must be 0..size-1"},
      {[](auto& e) { e.input_offset = kArena; }, "the tensor is not inside the client's arena"},
      {[](auto& e) { e.output_offset = ~std::uint64_t{0} - 3; },
       "the tensor is not inside the client's arena"},
      {[](auto& e) { e.input_offset = 2; }, "the tensor is not aligned to its element"},
      {[](auto& e) { e.output_offset = 1; }, "the tensor is not aligned to its element"},
      {[](auto& e) { std::memset(e.recipe, 'a', sizeof(e.recipe)); },
       "the recipe's text does not end"},
      {[](auto& e) { e.tensor = 7; }, "the tensor is not declared in this group"},
  };
  const shm::SubmitEntry sound = entry_;
  for (const auto& [change, text] : changes) {
    entry_ = sound;
    change(entry_);
    EXPECT_EQ(problem(), text);
  }
}

// What a client says of blocks whose recipe the tuner chooses.
TEST_F(EntryCheck, TheEncodingOfBlocksIsPlainNumbers) {
  tensor_.slots = shm::BlockSlots{10'000, 1024, 4};
  entry_.flags = shm::kEntryHasBlocks;
  entry_.tensor = 7;
  entry_.role = static_cast<std::uint8_t>(Role::gradient);
  EXPECT_EQ(problem(&tensor_), "") << "nothing need be said";
  entry_.encoded_by = shm::EncodedBy{1, 0}.packed();
  EXPECT_EQ(problem(&tensor_), "the recipe of the blocks is the tensor's: the tuner has no say");
  const auto recipes = std::make_shared<CandidateRecipes>(CandidateRecipes{
      codec::parse_recipe("raw").value(), codec::parse_recipe("ef(bf16)").value()});
  tensor_.tuning = std::make_unique<TensorTuning>(TensorTuning::Candidates{recipes, 1},
                                                  TensorTuning::Place{.nodes = 2});
  EXPECT_EQ(problem(&tensor_), "");
  entry_.encoded_elements = 9'000;
  entry_.encoded_energy_bits = std::bit_cast<std::uint64_t>(2.0);
  entry_.encoded_residual_bits = std::bit_cast<std::uint64_t>(1.0);
  EXPECT_EQ(problem(&tensor_), "");
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  using Change = std::function<void(shm::SubmitEntry&)>;
  const std::vector<std::pair<Change, std::string>> changes = {
      {[](auto& e) {
         e.encoded_by = shm::EncodedBy{2, 0}.packed();
       },
       "the blocks' recipe is none that the tuner may choose"},
      {[](auto& e) { e.encoded_by = 0x100; },
       "the blocks' recipe is none that the tuner may choose"},
      {[](auto& e) { e.encoded_by = 0; }, "the blocks' recipe is none that the tuner may choose"},
      {[](auto& e) { e.encoded_by |= 0x10000; }, "a reserved field is not zero"},
      {[](auto& e) { e.encoded_elements = 10'001; },
       "the energies of the blocks are no sums of squares of the tensor's elements"},
      {[&](auto& e) { e.encoded_energy_bits = bits(-1.0); },
       "the energies of the blocks are no sums of squares of the tensor's elements"},
      {[&](auto& e) { e.encoded_energy_bits = bits(std::numeric_limits<double>::infinity()); },
       "the energies of the blocks are no sums of squares of the tensor's elements"},
      {[&](auto& e) { e.encoded_residual_bits = bits(std::numeric_limits<double>::quiet_NaN()); },
       "the energies of the blocks are no sums of squares of the tensor's elements"},
  };
  const shm::SubmitEntry sound = entry_;
  for (const auto& [change, text] : changes) {
    entry_ = sound;
    change(entry_);
    EXPECT_EQ(problem(&tensor_), text);
  }
  // Of elements nothing is said.
  entry_ = sound;
  entry_.flags = 0;
  tensor_.slots.reset();
  EXPECT_EQ(problem(&tensor_), "a reserved field is not zero");
}

TEST_F(EntryCheck, AnUndeclaredTensorHasACodeOfItsOwn) {
  entry_.tensor = 7;
  EXPECT_EQ(check().code, Errc::unknown_tensor);
  entry_.dtype = 99;
  EXPECT_EQ(check().code, Errc::invalid_argument);
}

TEST_F(EntryCheck, ADeclaredTensorDecidesDtypeCountAndRole) {
  entry_.tensor = 7;
  entry_.role = static_cast<std::uint8_t>(Role::gradient);
  EXPECT_EQ(problem(&tensor_), "");
  entry_.count = 9'999;
  EXPECT_EQ(problem(&tensor_), "dtype or count differ from the tensor's declaration");
  entry_.count = 10'000;
  entry_.role = 0;
  EXPECT_EQ(problem(&tensor_), "the role differs from the tensor's declaration");
}

// What nobody reads need not be there.
TEST_F(EntryCheck, OnlyTheRootOfABroadcastNeedsAnInput) {
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::broadcast);
  entry_.root = 1;
  entry_.input_offset = kArena;
  EXPECT_EQ(check(nullptr, 1).plan, nullptr);
  EXPECT_EQ(check(nullptr, 2).plan, &plan::kBroadcast);
}

TEST_F(EntryCheck, AnEntryOnALaneWithoutItsChunksIsRefused) {
  entry_.count = 10;
  const std::uint32_t lanes = check().lanes;
  group_.lane = (lanes & 1) != 0 ? 1 : 0;
  EXPECT_EQ(problem(), "the operation does not belong on this lane");
  tensor_.declared.one_lane = true;
  group_.lane = 0;
  entry_.tensor = 8;  // spread: lane 0
  entry_.count = tensor_.count;
  entry_.role = static_cast<std::uint8_t>(Role::gradient);
  EXPECT_EQ(check(&tensor_).lanes, 0b01u);
}

TEST_F(EntryCheck, ABarrierHasNoElements) {
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::barrier);
  EXPECT_EQ(problem(), "a barrier has no elements");
  entry_.count = 0;
  EXPECT_EQ(problem(), "");
}

}  // namespace
}  // namespace tern::daemon
