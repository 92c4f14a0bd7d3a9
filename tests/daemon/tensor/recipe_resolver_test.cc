#include "daemon/tensor/recipe_resolver.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "daemon/tensor/codec_state.h"

namespace tern::daemon {
namespace recipe_resolver_test {
namespace {

RecipeTerms gradient() {
  return {.dtype = DType::f32,
          .role = Role::gradient,
          .exempt = false,
          .has_tuner = true,
          .nodes = 3,
          .chunk_elements = 4096};
}

ResolvedRecipe declared_as(const char* text, const RecipeTerms& terms = gradient()) {
  const auto resolved = resolve_declared(text, terms);
  EXPECT_TRUE(resolved) << text << ": " << (resolved ? "" : resolved.error().text);
  return resolved ? *resolved : ResolvedRecipe{};
}

std::string refusal_of(const char* text, const RecipeTerms& terms = gradient()) {
  const auto resolved = resolve_declared(text, terms);
  EXPECT_FALSE(resolved) << text;
  return resolved ? "" : resolved.error().text;
}

codec::Recipe recipe_of(const char* text) {
  codec::Recipe recipe;
  EXPECT_TRUE(codec::parse_recipe_quick(text, recipe)) << text;
  return recipe;
}

OwnRecipe own_of(const char* text, const char* declared, const RecipeTerms& terms = gradient()) {
  return resolve_own(recipe_of(text), declared_as(declared, terms), terms);
}

// ---- Declarations

TEST(ResolveDeclared, ALossyRecipeAppliesWhereTheRoleMayLose) {
  EXPECT_TRUE(declared_as("ef(3lc:s=1)").lossy);
  RecipeTerms exact = gradient();
  exact.role = Role::exact;
  EXPECT_FALSE(declared_as("ef(3lc:s=1)", exact).compresses());
  RecipeTerms exempt = gradient();
  exempt.exempt = true;
  EXPECT_FALSE(declared_as("ef(3lc:s=1)", exempt).compresses());
}

TEST(ResolveDeclared, ALosslessRecipeAppliesToAnyRole) {
  RecipeTerms exact = gradient();
  exact.role = Role::exact;
  const ResolvedRecipe resolved = declared_as("lossless", exact);
  EXPECT_TRUE(resolved.lossless);
  EXPECT_FALSE(resolved.lossy);
}

TEST(ResolveDeclared, NothingIsCompressedOfIntegersOrOnOneNode) {
  RecipeTerms integers = gradient();
  integers.dtype = DType::i32;
  RecipeTerms alone = gradient();
  alone.nodes = 1;
  for (const char* text : {"ef(3lc:s=1)", "lossless", "auto"}) {
    EXPECT_FALSE(declared_as(text, integers).compresses()) << text;
    EXPECT_FALSE(declared_as(text, alone).compresses()) << text;
  }
}

TEST(ResolveDeclared, AutoHasErrorFeedbackWhereATunerMayLose) {
  const ResolvedRecipe gradients = declared_as("auto");
  EXPECT_TRUE(gradients.tuned);
  EXPECT_TRUE(gradients.lossy);
  EXPECT_EQ(gradients.recipe.memory, codec::Memory::ef);
  EXPECT_EQ(gradients.announced_memory, wire::AnnouncedMemory::ef);

  RecipeTerms exact = gradient();
  exact.role = Role::exact;
  const ResolvedRecipe exactly = declared_as("auto", exact);
  EXPECT_TRUE(exactly.tuned);
  EXPECT_FALSE(exactly.lossy);
  EXPECT_EQ(exactly.recipe.memory, codec::Memory::none);
}

TEST(ResolveDeclared, AutoIsRawWithoutATuner) {
  RecipeTerms terms = gradient();
  terms.has_tuner = false;
  const ResolvedRecipe resolved = declared_as("auto", terms);
  EXPECT_FALSE(resolved.compresses());
  EXPECT_EQ(resolved.recipe.memory, codec::Memory::none);
}

TEST(ResolveDeclared, AScaleOverTheTensorNeedsErrorFeedbackAndOneLane) {
  EXPECT_TRUE(declared_as("ef(3lc:scale=tensor)").one_lane);
  EXPECT_FALSE(declared_as("ef(3lc:s=1)").one_lane);
  EXPECT_NE(refusal_of("none(3lc:scale=tensor)").find("error feedback"), std::string::npos);
}

TEST(ResolveDeclared, AnnouncesMemoryAndAlpha) {
  EXPECT_EQ(declared_as("raw").announced_memory, wire::AnnouncedMemory::none);
  EXPECT_EQ(declared_as("raw").alpha, 1.0f);
  EXPECT_EQ(declared_as("ef(3lc:s=1)").announced_memory, wire::AnnouncedMemory::ef);
  EXPECT_EQ(declared_as("xordelta").announced_memory, wire::AnnouncedMemory::last_values);
  const ResolvedRecipe shift = declared_as("diana(qsgd:levels=7)");
  EXPECT_EQ(shift.announced_memory, wire::AnnouncedMemory::diana);
  EXPECT_EQ(shift.alpha, CodecState::alpha_of(shift.recipe, gradient().chunk_elements));
  EXPECT_LT(shift.alpha, 1.0f);
}

TEST(ResolveDeclared, TheAlphaIsThatOfTheAllocatedState) {
  for (const char* text : {"diana(qsgd:levels=7)", "ef21(topk:p=0.01)", "ef(3lc:s=1)"}) {
    const ResolvedRecipe resolved = declared_as(text);
    CodecState state;
    ASSERT_TRUE(state.allocate(
        resolved.recipe,
        {.count = 10000, .chunk_elements = gradient().chunk_elements, .nodes = gradient().nodes}));
    EXPECT_EQ(resolved.alpha, state.alpha()) << text;
  }
}

TEST(ResolveDeclared, RefusesWhatIsNoRecipeOrCannotTravelHere) {
  EXPECT_FALSE(refusal_of("3lx").empty());
  EXPECT_NE(refusal_of("ef(lloyd:bits=4+huffman:book=nobody)").find("codebook nobody"),
            std::string::npos);
}

TEST(SameState, ComparesWhatBothEndsKeep) {
  EXPECT_TRUE(same_state(declared_as("ef(3lc:s=1)"), declared_as("ef(3lc:s=1.5)")));
  EXPECT_FALSE(same_state(declared_as("ef(3lc:s=1)"), declared_as("none(3lc:s=1)")));
  EXPECT_FALSE(same_state(declared_as("raw"), declared_as("lossless")));
  EXPECT_FALSE(same_state(declared_as("lossless"), declared_as("xordelta")));
  EXPECT_FALSE(
      same_state(declared_as("diana(qsgd:levels=7)"), declared_as("diana(qsgd:levels=1)")));
}

// ---- Ops that bring their own

TEST(ResolveOwn, RawGoesWithAnyDeclaration) {
  for (const char* declared : {"raw", "ef(3lc:s=1)", "diana(qsgd:levels=7)", "auto", "lossless"}) {
    const OwnRecipe own = own_of("raw", declared);
    EXPECT_EQ(own.problem, nullptr) << declared;
    EXPECT_FALSE(own.resolved.compresses()) << declared;
    EXPECT_EQ(own.resolved.recipe.memory, declared_as(declared).recipe.memory) << declared;
  }
}

TEST(ResolveOwn, WhatIsAnnouncedStaysTheDeclarations) {
  const ResolvedRecipe declared = declared_as("diana(qsgd:levels=7)");
  const OwnRecipe own = resolve_own(recipe_of("raw"), declared, gradient());
  EXPECT_EQ(own.resolved.announced_memory, declared.announced_memory);
  EXPECT_EQ(own.resolved.alpha, declared.alpha);
}

TEST(ResolveOwn, WhatIsWrittenOutHasBeenAskedFor) {
  const ResolvedRecipe declared = resolve_declared("3lc:s=1", gradient()).value();
  EXPECT_FALSE(declared.asked) << "who declares says so";
  EXPECT_TRUE(resolve_own(recipe_of("bf16"), declared, gradient()).resolved.asked);
  EXPECT_FALSE(resolve_own(recipe_of("auto"), declared, gradient()).resolved.asked);
}

TEST(ResolveOwn, OfAnotherMemoryIsRefused) {
  const OwnRecipe own = own_of("ef(3lc:s=1)", "diana(qsgd:levels=7)");
  ASSERT_NE(own.problem, nullptr);
  EXPECT_STREQ(own.problem,
               "the recipe's memory differs from the declaration's; declare the tensor with it");
}

TEST(ResolveOwn, WhatNeedsTheDeclarationIsRefusedWithoutIt) {
  EXPECT_STREQ(own_of("ef(3lc:scale=tensor)", "ef(3lc:s=1)").problem,
               "scale=tensor must be in the tensor's declaration");
  EXPECT_EQ(own_of("ef(3lc:scale=tensor)", "ef(3lc:scale=tensor)").problem, nullptr);
  EXPECT_STREQ(own_of("xordelta", "raw").problem, "xordelta must be in the tensor's declaration");
}

TEST(ResolveOwn, AWilderRecipeThanTheDeclaredAlphaAllowsIsRefused) {
  EXPECT_STREQ(own_of("diana(qsgd:levels=1)", "diana(qsgd:levels=127)").problem,
               "the recipe varies more than the declared one, whose alpha is too large for it");
  EXPECT_EQ(own_of("diana(qsgd:levels=127)", "diana(qsgd:levels=1)").problem, nullptr);
}

TEST(ResolveOwn, AutoIsTunedOnlyIfItWasDeclared) {
  EXPECT_TRUE(own_of("auto", "auto").resolved.tuned);
  EXPECT_FALSE(own_of("auto", "ef(3lc:s=1)").resolved.tuned);
  EXPECT_FALSE(own_of("none(bf16)", "auto").resolved.tuned);
}

TEST(ResolveOwn, AnOpWithoutATensorMayBeLosslessAndNeverLossy) {
  const RecipeTerms terms{.dtype = DType::f32, .nodes = 3, .chunk_elements = 4096};
  const OwnRecipe lossless = resolve_own(recipe_of("lossless"), ResolvedRecipe{}, terms);
  EXPECT_EQ(lossless.problem, nullptr);
  EXPECT_TRUE(lossless.resolved.lossless);
  EXPECT_EQ(lossless.resolved.alpha, 0.0f);
  const OwnRecipe lossy = resolve_own(recipe_of("bf16"), ResolvedRecipe{}, terms);
  EXPECT_FALSE(lossy.resolved.lossy);
}

// ---- The texts

TEST(RecipeTexts, ReadsWhatTheParserReads) {
  RecipeTexts texts;
  for (int times = 0; times < 2; ++times) {
    codec::Recipe recipe;
    ASSERT_TRUE(texts.read("ef(3lc:s=1)", recipe));
    EXPECT_EQ(recipe, recipe_of("ef(3lc:s=1)"));
  }
  EXPECT_EQ(texts.remembered(), 1u);
}

TEST(RecipeTexts, RemembersNothingOfWhatIsNoRecipe) {
  RecipeTexts texts;
  codec::Recipe recipe = recipe_of("bf16");
  EXPECT_FALSE(texts.read("3lx", recipe));
  EXPECT_EQ(recipe, recipe_of("bf16"));
  EXPECT_EQ(texts.remembered(), 0u);
}

// However many an application brings, the lanes of one op parse its text once.
TEST(RecipeTexts, ATextTakesThePlaceOfTheOldest) {
  RecipeTexts texts;
  const auto read = [&](std::size_t i) {
    const std::string text = "ef(3lc:s=1." + std::to_string(10 + i) + ")";
    codec::Recipe recipe;
    ASSERT_TRUE(texts.read(text, recipe));
    EXPECT_EQ(recipe, recipe_of(text.c_str()));
  };
  constexpr std::size_t kTexts = RecipeTexts::kEntries + 4;
  for (std::size_t i = 0; i < kTexts; ++i) {
    for (int lane = 0; lane < 3; ++lane) read(i);
  }
  EXPECT_EQ(texts.remembered(), kTexts);
  for (std::size_t i = 4; i < kTexts; ++i) read(i);
  EXPECT_EQ(texts.remembered(), kTexts);
  read(0);
  EXPECT_EQ(texts.remembered(), kTexts + 1);
}

TEST(RecipeTexts, LanesShareIt) {
  RecipeTexts texts;
  std::vector<std::thread> lanes;
  std::array<bool, 4> right{};
  for (std::size_t lane = 0; lane < right.size(); ++lane) {
    lanes.emplace_back([&texts, &mine = right[lane]] {
      mine = true;
      for (int i = 0; i < 2000; ++i) {
        const std::string text = "ef(3lc:s=1." + std::to_string(10 + i % 40) + ")";
        codec::Recipe recipe, expected;
        mine = mine && texts.read(text, recipe) && codec::parse_recipe_quick(text, expected) &&
               recipe == expected;
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  for (const bool lane_right : right) EXPECT_TRUE(lane_right);
  EXPECT_GE(texts.remembered(), 1u);
}

}  // namespace
}  // namespace recipe_resolver_test
}  // namespace tern::daemon
