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
  EXPECT_EQ(tuner.remember()["tensors"], before["tensors"]);
  tuner.add_tensor(7, tensor("w"));
  for (CandidateIndex one = 1; one < 6; ++one) {
    EXPECT_TRUE(tuner.policy(7).records()[one].measured);
  }
  EXPECT_EQ(tuner.remember(), before);
  // Not a single raw op is needed.
  EXPECT_NE(tuner.decide(7).broadcast, kRaw);
}

void come_and_go(Tuner& tuner, const std::string& name) {
  constexpr TensorKey kKey = 100;
  tuner.add_tensor(kKey, tensor(name));
  measure_all(tuner, kKey);
  tuner.remove_tensor(kKey);
}

bool knows(Tuner& tuner, const std::string& name) {
  constexpr TensorKey kKey = 101;
  tuner.add_tensor(kKey, tensor(name));
  const bool known = tuner.policy(kKey).records()[1].measured;
  tuner.remove_tensor(kKey);
  return known;
}

TEST(Memory, TheLongestUnusedTensorMakesRoom) {
  Tuner tuner(usual_candidates());
  come_and_go(tuner, "a");
  come_and_go(tuner, "b");
  for (int i = 0; i < 4'095; ++i) {
    come_and_go(tuner, "z" + std::to_string(i));
    if (i == 0) come_and_go(tuner, "a");
  }
  EXPECT_TRUE(knows(tuner, "a"));
  EXPECT_FALSE(knows(tuner, "b"));
  EXPECT_TRUE(knows(tuner, "z4094"));
}

TEST(Memory, WhatIsUnusedIsSoAfterARestart) {
  Tuner before(usual_candidates());
  for (const char* name : {"c", "b", "a"}) come_and_go(before, name);
  before.add_tensor(1, tensor("c"));
  measure_all(before, 1);
  const json document = before.remember();
  EXPECT_EQ(document["undeclared"], (json{"b", "a"}));
  Tuner after(usual_candidates());
  ASSERT_TRUE(after.recall(document).has_value());
  // c was in use.
  EXPECT_EQ(after.remember()["undeclared"], (json{"b", "a", "c"}));
}

TEST(Memory, MoreThanIsKeptIsRecalledButNotWithoutEnd) {
  Tuner before(usual_candidates());
  come_and_go(before, "tensor");
  json document = before.remember();
  const json known = document["tensors"]["tensor"]["3lc:s=1"];
  json& tensors = document["tensors"];
  for (int i = 0; i < 65'536; ++i) tensors["job/" + std::to_string(i)]["3lc:s=1"] = known;
  Tuner after(usual_candidates());
  ASSERT_TRUE(after.recall(document).has_value());
  EXPECT_EQ(after.remember()["tensors"].size(), 65'536u);
  EXPECT_FALSE(after.remember()["tensors"].contains("tensor"));  // nobody had declared it
  come_and_go(after, "another");
  EXPECT_EQ(after.remember()["tensors"].size(), 65'535u);
}

// Of a short chunk's sample a block is mostly header.
TEST(Memory, OfTheSmallestBlocksIsRecalled) {
  Tuner before(usual_candidates());
  before.add_tensor(1, tensor("w"));
  SampleMeasurement sample = sample_of(3);
  sample.bytes = 4;
  sample.block_bytes = 37;
  before.observe_sample(1, sample);
  Tuner after(usual_candidates());
  EXPECT_TRUE(after.recall(before.remember()).has_value());
}

TEST(Memory, PeersThatNoTensorHasMakeRoom) {
  Tuner tuner(usual_candidates());
  tuner.add_tensor(1, tensor("w"));  // its peer is "b"
  for (int i = 0; i < 10; ++i) tuner.observe_rate("b", 12.5e6, false);
  for (int i = 0; i < 5'000; ++i) {
    TensorInfo info = tensor("pod");
    info.peers = {"10.0.0." + std::to_string(i)};
    tuner.add_tensor(2, info);
    for (int op = 0; op < 10; ++op) tuner.observe_rate(info.peers[0], 1e6, false);
    tuner.remove_tensor(2);
  }
  const json peers = tuner.remember()["peers"];
  EXPECT_LE(peers.size(), 4'096u);
  EXPECT_TRUE(peers.contains("b"));
  EXPECT_TRUE(peers.contains("10.0.0.4999"));
  EXPECT_FALSE(peers.contains("10.0.0.0"));
}

TEST(Memory, OfAnOlderDaemonIsRecalled) {
  json document = learnt();
  document.erase("undeclared");
  Tuner tuner(usual_candidates());
  EXPECT_TRUE(tuner.recall(document).has_value());
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
  with("/undeclared", 3);
  with("/undeclared/0", 3);
  with("/undeclared/0", "never heard of");
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
    if (name == "undeclared") continue;  // older daemons write none
    json copy = good;
    copy.erase(name);
    Tuner tuner(usual_candidates());
    EXPECT_FALSE(tuner.recall(copy).has_value()) << name;
  }
}

}  // namespace
}  // namespace tern::tuner
