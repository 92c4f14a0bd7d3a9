#include "daemon/tuning/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tern::daemon::candidates_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Candidates> read(const std::string& setting) {
  return read_candidates(split_candidates(setting));
}

std::string mistake_in(const std::string& setting) {
  const auto candidates = read(setting);
  EXPECT_FALSE(candidates) << setting;
  return candidates ? "" : candidates.error().text;
}

TEST(Candidates, AreSeparatedBySpaces) {
  EXPECT_THAT(split_candidates("  raw ef(bf16)   3lc:s=1 "),
              ElementsAre("raw", "ef(bf16)", "3lc:s=1"));
  EXPECT_TRUE(split_candidates(" ").empty());
}

TEST(Candidates, AreTheUsualOnesWhereNoneAreGiven) {
  const auto candidates = read("");
  ASSERT_TRUE(candidates);
  EXPECT_EQ(candidates->texts.size(), tuner::usual_candidates().size());
  EXPECT_EQ(candidates->recipes->size(), candidates->texts.size());
}

TEST(Candidates, AreAlikeAsTextsAndAsRecipes) {
  const auto candidates = read("raw lossless ef(bf16)");
  ASSERT_TRUE(candidates) << candidates.error().text;
  ASSERT_EQ(candidates->texts.size(), 3u);
  for (std::size_t i = 0; i < candidates->texts.size(); ++i) {
    const codec::Recipe& recipe = candidates->recipes->at(i);
    EXPECT_EQ(recipe, *codec::parse_recipe(candidates->texts[i].recipe));
    EXPECT_EQ(candidates->texts[i].lossless, !codec::is_lossy(recipe));
  }
}

TEST(Candidates, AreThoseBetweenWhichTheTunerMayChange) {
  EXPECT_THAT(mistake_in("raw 3lx"), HasSubstr("candidates: "));
  EXPECT_THAT(mistake_in("lossless raw"), HasSubstr("the first must be raw"));
  for (const char* one : {"auto", "none(bf16)", "diana(qsgd:levels=7)", "ef21(topk:p=0.1)",
                          "xordelta", "ef(3lc:scale=tensor)"}) {
    EXPECT_THAT(mistake_in(std::string("raw ") + one), HasSubstr(" cannot be one")) << one;
  }
  std::string many = "raw";
  for (std::size_t i = 1; i < tuner::kMaxCandidates; ++i) many += " lossless";
  EXPECT_TRUE(read(many));
  EXPECT_THAT(mistake_in(many + " lossless"), HasSubstr("at most 16 recipes"));
}

}  // namespace
}  // namespace tern::daemon::candidates_test
