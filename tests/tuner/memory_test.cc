#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tuner/tuner_rig.h"
#include "tuner/tuner.h"

namespace tern::tuner {
namespace {

using nlohmann::json;

json learnt() {
  Tuner tuner(usual_candidates());
  tuner.add_tensor(1, tensor("w"));
  tuner.add_tensor(2, tensor("gone"));
  std::mt19937_64 engine(1);
  for (int op = 0; op < 50; ++op) {
    random_observations(tuner, 1, engine);
    random_observations(tuner, 2, engine);
    tuner.decide(1);
  }
  measure_all(tuner, 1);
  measure_all(tuner, 2);
  for (int i = 0; i < 8; ++i) tuner.observe_rate("b", 12.5e6, false);
  tuner.remove_tensor(2);
  return tuner.remember();
}

TEST(Memory, SurvivesARestart) {
  const json before = learnt();
  Tuner tuner(usual_candidates());
  ASSERT_TRUE(tuner.recall(before).has_value());
  // Tensors that nobody has declared yet are kept, too.
  EXPECT_EQ(tuner.remember(), before);
  tuner.add_tensor(7, tensor("w"));
  for (CandidateIndex one = 1; one < 6; ++one) {
    EXPECT_TRUE(tuner.policy(7).records()[one].measured);
  }
  EXPECT_EQ(tuner.remember(), before);
  // Not a single raw op is needed.
  EXPECT_NE(tuner.decide(7).broadcast, kRaw);
}

TEST(Memory, OfOtherCandidatesIsKeptButNotUsed) {
  Tuner tuner({{"raw", true}, {"ef(int:bits=2)", false}});
  ASSERT_TRUE(tuner.recall(learnt()).has_value());
  tuner.add_tensor(1, tensor("w"));
  EXPECT_FALSE(tuner.policy(1).allowed(1));
}

TEST(Memory, NothingOfADamagedOneIsTaken) {
  const json good = learnt();
  Tuner fresh(usual_candidates());
  const json empty = fresh.remember();
  std::vector<json> damaged = {json(), json(1), json::array(), json::object()};
  const auto with = [&](const char* pointer, const json& value) {
    json copy = good;
    copy[json::json_pointer(pointer)] = value;
    damaged.push_back(copy);
  };
  with("/version", 2);
  with("/version", "1");
  with("/tensors/w/3lc:s=1/loss", -0.1);
  with("/tensors/w/3lc:s=1/loss", "small");
  with("/tensors/w/3lc:s=1/wire", 9.0);
  with("/tensors/w/3lc:s=1/fit", 0.0);
  with("/tensors/w/3lc:s=1/tried", 1);
  with("/tensors/w", 3);
  with("/tensors", 3);
  with("/speeds/3lc:s=1/2/encode_ns", -1.0);
  with("/peers/b", "fast");
  with("/byte_ns", 0.0);
  with("/chunk_ns", 1e12);
  for (const json& one : damaged) {
    Tuner tuner(usual_candidates());
    const Status status = tuner.recall(one);
    ASSERT_FALSE(status.has_value()) << one.dump();
    EXPECT_FALSE(status.error().text.empty());
    EXPECT_EQ(tuner.remember(), empty);
  }
}

TEST(Memory, EveryMissingFieldIsNoticed) {
  const json good = learnt();
  for (const auto& [name, value] : good.items()) {
    json copy = good;
    copy.erase(name);
    Tuner tuner(usual_candidates());
    EXPECT_FALSE(tuner.recall(copy).has_value()) << name;
  }
}

}  // namespace
}  // namespace tern::tuner
