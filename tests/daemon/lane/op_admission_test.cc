#include "daemon/lane/op_admission.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string>

namespace tern::daemon::op_admission_test {
namespace {

constexpr std::uint64_t kCount = 8192, kBytes = kCount * sizeof(float);

class OpAdmissionTest : public ::testing::Test {
 protected:
  OpAdmissionTest() {
    setup_.size = 3;
    setup_.lossy_min_bytes = 4096;
    setup_.shape.ranks = {{0, 1}, {2}};
    setup_.shape.chunk_bytes = 4096;
    setup_.shape.eager_bytes = 1024;
    entry_.kind = static_cast<std::uint16_t>(shm::OpKind::all_reduce);
    entry_.count = kCount;
    entry_.prescale_bits = entry_.state_scale_bits = std::bit_cast<std::uint32_t>(1.0f);
  }

  // From here on the entry is of a tensor that was declared so.
  TensorState& declare(const std::string& recipe, Role role = Role::gradient) {
    tensor_.id = entry_.tensor = 7;
    tensor_.count = kCount;
    tensor_.role = role;
    tensor_.generation = 5;
    const RecipeTerms terms{.role = role, .has_tuner = true, .nodes = 2, .chunk_elements = 1024};
    tensor_.declared = resolve_declared(recipe, terms).value();
    tensor_.declared.recipe = tensor_.declared.recipe;
    tensor_.declared.one_lane = tensor_.declared.one_lane;
    if (tensor_.declared.tuned) {
      tensor_.tuning = std::make_unique<TensorTuning>(TensorTuning::Candidates{},
                                                      TensorTuning::Place{.nodes = 2});
    }
    entry_.role = static_cast<std::uint8_t>(role);
    declared_ = true;
    return tensor_;
  }
  void bring(const char* recipe) { std::strcpy(entry_.recipe, recipe); }
  OpAdmission::Admitted admit() {
    return OpAdmission(setup_).admit(entry_, {1, arena_, declared_ ? &tensor_ : nullptr});
  }
  std::string problem() {
    const OpAdmission::Admitted admitted = admit();
    return admitted.checked.problem != nullptr ? admitted.checked.problem : "";
  }

  GroupSetup setup_;
  shm::SubmitEntry entry_{};

 private:
  TensorState tensor_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
  Region arena_{memory_.data(), memory_.size()};
  bool declared_ = false;
};

TEST_F(OpAdmissionTest, WhatCannotBeAnOpIsRefusedWithItsReason) {
  entry_.input_offset = 1 << 20;
  const OpAdmission::Admitted admitted = admit();
  EXPECT_NE(admitted.checked.problem, nullptr);
  EXPECT_EQ(admitted.checked.code, Errc::invalid_argument);
  EXPECT_EQ(admitted.body.count, 0u);
  entry_.input_offset = 0;
  bring("3lc:s=");
  EXPECT_EQ(problem(), "the operation's recipe cannot be read");
  EXPECT_EQ(admit().checked.code, Errc::bad_recipe);
  declare("ef(3lc:s=1)");
  bring("diana(qsgd:levels=4)");
  EXPECT_NE(problem(), "");
  EXPECT_EQ(admit().checked.code, Errc::bad_recipe);
}

TEST_F(OpAdmissionTest, ARankHasItsTicketAndTheMemoryThatItNames) {
  entry_.ticket = 9;
  entry_.input_offset = 64;
  entry_.output_offset = 64 + kBytes;
  entry_.prescale_bits = std::bit_cast<std::uint32_t>(0.5f);
  const Region region{};
  const OpRank rank = admit().rank(entry_, {1, region, nullptr, &region, &region});
  EXPECT_EQ(rank.ticket, 9u);
  EXPECT_EQ(rank.prescale, 0.5f);
  EXPECT_EQ(rank.input.region, &region);
  EXPECT_EQ(rank.input.offset, 64u);
  EXPECT_EQ(rank.input.bytes, kBytes);
  EXPECT_EQ(rank.output.offset, 64 + kBytes);
  EXPECT_EQ(rank.output.bytes, kBytes);
  EXPECT_EQ(rank.extents.input.count, kCount);
  EXPECT_NE(rank.lanes, 0u);
}

TEST_F(OpAdmissionTest, WhereATensorHasSlotsARankHasMemoryForAllOfThem) {
  const shm::BlockSlots slots{kCount, 1024, sizeof(float)};
  OpAdmission::Admitted admitted = admit();
  admitted.op.tensor = &declare("ef(3lc:s=1)");
  admitted.op.tensor->slots = slots;
  const Region region{};
  const OpRank rank = admitted.rank(entry_, {1, region, nullptr, &region, &region});
  EXPECT_EQ(rank.input.bytes, slots.bytes());
  EXPECT_EQ(rank.output.bytes, slots.bytes());
}

TEST(RefusalOf, HasACodeAndASentenceUnlessTheOpWasAccepted) {
  using Result = collective::GroupOps::SubmitResult;
  EXPECT_EQ(refusal_of(Result::accepted).code, Errc::ok);
  EXPECT_EQ(refusal_of(Result::too_many).code, Errc::would_block);
  EXPECT_EQ(refusal_of(Result::duplicate).code, Errc::invalid_argument);
  EXPECT_EQ(refusal_of(Result::released).code, Errc::cancelled);
  for (const Result refused : {Result::too_many, Result::duplicate, Result::released}) {
    EXPECT_STRNE(refusal_of(refused).text, "");
  }
}

TEST_F(OpAdmissionTest, TheAnnouncementSaysWhatTheEntryAsks) {
  entry_.reduction = static_cast<std::uint8_t>(Reduction::max);
  entry_.root = 2;  // means nothing here
  const wire::AnnounceBody body = admit().body;
  EXPECT_EQ(body.count, kCount);
  EXPECT_EQ(body.kind, static_cast<std::uint16_t>(shm::OpKind::all_reduce));
  EXPECT_EQ(body.reduction, static_cast<std::uint8_t>(Reduction::max));
  EXPECT_EQ(body.rank, 1u);
  EXPECT_EQ(body.root, 0u);
  EXPECT_EQ(body.generation, 0u);
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::broadcast);
  EXPECT_EQ(admit().body.root, 2u);
}

TEST_F(OpAdmissionTest, TheAnnouncementSaysHowTheTensorWasDeclared) {
  declare("ef(3lc:scale=tensor)").exempt = true;
  bring("bf16");
  const OpAdmission::Admitted admitted = admit();
  EXPECT_EQ(admitted.checked.problem, nullptr) << admitted.checked.problem;
  EXPECT_EQ(admitted.body.generation, 5u);
  EXPECT_EQ(admitted.body.flags, wire::kAnnounceOneLane | wire::kAnnounceExempt);
  EXPECT_EQ(admitted.body.memory, static_cast<std::uint8_t>(codec::Memory::ef))
      << "the declaration's, whatever the op brings";
}

TEST_F(OpAdmissionTest, NodesMustAgreeOnTheStateScaleOfAShiftOnly) {
  entry_.state_scale_bits = std::bit_cast<std::uint32_t>(0.5f);
  declare("ef(3lc:s=1)");
  EXPECT_EQ(admit().body.state_scale_bits, 0u);
  declare("diana(qsgd:levels=4)");
  EXPECT_EQ(admit().body.state_scale_bits, std::bit_cast<std::uint32_t>(0.5f));
}

TEST_F(OpAdmissionTest, OnlySumsAndAveragesMayLose) {
  declare("ef(3lc:s=1)");
  for (const Reduction reduction : {Reduction::sum, Reduction::average}) {
    entry_.reduction = static_cast<std::uint8_t>(reduction);
    EXPECT_TRUE(admit().op.encoding.lossy) << reduction_name(reduction);
  }
  for (const Reduction reduction : {Reduction::min, Reduction::max, Reduction::product}) {
    entry_.reduction = static_cast<std::uint8_t>(reduction);
    EXPECT_FALSE(admit().op.encoding.lossy) << reduction_name(reduction);
  }
}

TEST_F(OpAdmissionTest, WhatIsSmallOrMovesWithItsAnnouncementIsNotEncoded) {
  bring("lossless");
  setup_.lossy_min_bytes = kBytes + 1;
  EXPECT_FALSE(admit().op.encoding.lossless);
  setup_.lossy_min_bytes = kBytes;
  setup_.shape.eager_bytes = kBytes;
  EXPECT_TRUE(admit().op.encoding.lossless);
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::broadcast);
  EXPECT_FALSE(admit().op.encoding.lossless);
  setup_.shape.eager_bytes = kBytes - 1;
  EXPECT_TRUE(admit().op.encoding.lossless);
}

TEST_F(OpAdmissionTest, SharesOfAGradientOrDeltaMayLose) {
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::all_gather);
  entry_.reduction = static_cast<std::uint8_t>(Reduction::max);  // means nothing here
  entry_.count = kCount - kCount % 3;
  for (const Role role : {Role::exact, Role::gradient, Role::delta, Role::weights}) {
    declare("ef(3lc:s=1)", role).count = entry_.count;
    EXPECT_EQ(admit().op.encoding.lossy, role_may_be_lossy(role)) << role_name(role);
  }
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::gather);
  declare("ef(3lc:s=1)", Role::delta).count = entry_.count;
  EXPECT_FALSE(admit().op.encoding.lossy);
}

TEST_F(OpAdmissionTest, ABroadcastDeltaLosesByARecipeThatIsWrittenOut) {
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::broadcast);
  TensorState& tensor = declare("ef(3lc:s=1)", Role::delta);
  EXPECT_FALSE(admit().op.encoding.lossy) << "a policy's, or the default";
  tensor.declared.asked = true;
  EXPECT_TRUE(admit().op.encoding.lossy);
  bring("auto");
  EXPECT_FALSE(admit().op.encoding.lossy);
  tensor.declared.asked = false;
  bring("ef(int:bits=4)");
  EXPECT_TRUE(admit().op.encoding.lossy);
  setup_.shape.eager_bytes = kBytes;
  EXPECT_TRUE(admit().op.encoding.lossy) << "it declines to go with its announcement";
  TensorState& gradient = declare("ef(3lc:s=1)", Role::gradient);
  gradient.declared.asked = true;
  EXPECT_FALSE(admit().op.encoding.lossy);
}

TEST_F(OpAdmissionTest, AShiftIsNotForWhatMovesLossily) {
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::broadcast);
  TensorState& tensor = declare("diana(qsgd:levels=4)", Role::delta);
  EXPECT_EQ(problem(), "") << "it is sent raw";
  tensor.declared.asked = true;
  EXPECT_EQ(problem(), "the operation cannot have diana or ef21; declare the tensor with ef");
  EXPECT_EQ(admit().checked.code, Errc::bad_recipe);
}

TEST_F(OpAdmissionTest, AResidualIsOfOneKind) {
  TensorState& tensor = declare("ef(3lc:s=1)", Role::delta);
  tensor.declared.asked = true;
  ASSERT_TRUE(tensor.memory_use.take({.kind = entry_.kind}));
  EXPECT_EQ(problem(), "");
  entry_.kind = static_cast<std::uint16_t>(shm::OpKind::broadcast);
  EXPECT_NE(problem().find("declare a tensor for each"), std::string::npos);
  bring("raw");
  EXPECT_EQ(problem(), "");
}

TEST_F(OpAdmissionTest, AnOpsOwnRecipeLosesOnlyWhatIsOfATensor) {
  bring("bf16");
  EXPECT_FALSE(admit().op.encoding.lossy);
  EXPECT_FALSE(admit().op.encoding.lossless);
  declare("ef(3lc:s=1)");
  bring("ef(int:bits=4)");
  const OpEncoding encoding = admit().op.encoding;
  EXPECT_TRUE(encoding.lossy);
  EXPECT_EQ(codec::canonical_text(encoding.recipe), "ef(int:bits=4)");
}

TEST_F(OpAdmissionTest, SendsAndRecvsLoseByARecipeWithoutMemoryAlone) {
  for (const shm::OpKind kind : {shm::OpKind::send, shm::OpKind::recv}) {
    entry_.kind = static_cast<std::uint16_t>(kind);
    entry_.dtype = static_cast<std::uint8_t>(DType::f32);
    entry_.recipe[0] = '\0';
    EXPECT_EQ(admit().body.flags, 0u);
    bring("none(int:bits=8)");
    EXPECT_EQ(admit().body.flags, wire::kAnnounceLossy);
    EXPECT_TRUE(admit().op.encoding.lossy);
    setup_.lossy_min_bytes = kBytes + 1;
    EXPECT_EQ(admit().body.flags, wire::kAnnounceLossy) << "it is said whatever the size";
    EXPECT_FALSE(admit().op.encoding.lossy);
    setup_.lossy_min_bytes = kBytes;
    entry_.dtype = static_cast<std::uint8_t>(DType::i32);
    EXPECT_EQ(admit().body.flags, 0u);
    for (const char* exact : {"raw", "auto", "lossless"}) {
      std::memset(entry_.recipe, 0, sizeof(entry_.recipe));
      bring(exact);
      EXPECT_EQ(problem(), "") << exact;
      EXPECT_EQ(admit().body.flags, 0u) << exact;
    }
    std::memset(entry_.recipe, 0, sizeof(entry_.recipe));
    bring("ef(int:bits=8)");
    EXPECT_EQ(problem(),
              "the operation takes no tensor that could have the recipe's memory; write none(...)");
    EXPECT_EQ(admit().checked.code, Errc::bad_recipe);
    std::memset(entry_.recipe, 0, sizeof(entry_.recipe));
  }
}

TEST_F(OpAdmissionTest, TheTunerChoosesWhereAnOpMayBeEncoded) {
  TensorTuning* const tuning = declare("auto").tuning.get();
  ASSERT_NE(tuning, nullptr);
  EXPECT_EQ(admit().op.encoding.tuning, tuning);
  EXPECT_TRUE(admit().op.encoding.lossless);
  entry_.reduction = static_cast<std::uint8_t>(Reduction::max);
  EXPECT_EQ(admit().op.encoding.tuning, tuning) << "what loses nothing it may have";
  EXPECT_FALSE(admit().op.encoding.lossy);
  setup_.lossy_min_bytes = kBytes + 1;
  EXPECT_EQ(admit().op.encoding.tuning, nullptr);
  setup_.lossy_min_bytes = 0;
  bring("raw");
  EXPECT_EQ(admit().op.encoding.tuning, nullptr);
}

}  // namespace
}  // namespace tern::daemon::op_admission_test
