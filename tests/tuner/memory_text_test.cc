#include "tuner/memory_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/tuner/tuner_rig.h"

namespace tern::tuner {
namespace memory_text_test {

using nlohmann::json;

constexpr TensorKey kDeclared = 1, kLater = 50, kBriefly = 100;

void learn(Tuner& tuner, TensorKey key, const char* name) {
  tuner.add_tensor(key, tensor(name));
  measure_all(tuner, key);
}
void come_and_go(Tuner& tuner, const char* name) {
  learn(tuner, kBriefly, name);
  tuner.remove_tensor(kBriefly);
}

class MemoryTextTest : public testing::Test {
 protected:
  MemoryTextTest() {
    learn(tuner, kDeclared, "w");
    learn(tuner, kDeclared + 1, "w");  // of another group
    learn(tuner, kDeclared + 2, "bias");
    for (const char* name : {"gone", "long gone"}) come_and_go(tuner, name);
  }
  static void finish(MemoryText& text) {
    while (text.go_on()) {
    }
  }

  Tuner tuner{usual_candidates()};
};

TEST_F(MemoryTextTest, IsTheSameAsAllAtOnce) {
  MemoryText text(tuner);
  finish(text);
  const json document = json::parse(text.take_text());
  EXPECT_EQ(document, tuner.remember());
  EXPECT_EQ(document["tensors"].size(), 4u);
  EXPECT_EQ(document["undeclared"], (json{"gone", "long gone"}));
}

TEST_F(MemoryTextTest, OfATunerThatKnowsNothingIsADocumentToo) {
  const Tuner fresh(usual_candidates());
  MemoryText text(fresh);
  finish(text);
  Tuner other(usual_candidates());
  EXPECT_TRUE(other.recall(json::parse(text.take_text())).has_value());
}

TEST_F(MemoryTextTest, MayBeTakenInPieces) {
  MemoryText text(tuner);
  std::string whole;
  for (bool more = true; more;) {
    more = text.go_on();
    const std::size_t bytes = text.text_bytes();
    const std::string piece = text.take_text();
    EXPECT_EQ(piece.size(), bytes);
    EXPECT_EQ(text.text_bytes(), 0u);
    whole += piece;
  }
  EXPECT_EQ(json::parse(whole), tuner.remember());
}

TEST_F(MemoryTextTest, GoesOnByATensorAtATime) {
  MemoryText text(tuner);
  int steps = 0;
  while (text.go_on()) ++steps;
  // Each declared one is looked at and each name written; two are listed as undeclared.
  EXPECT_GE(steps, 3 + 4 + 2);
  EXPECT_FALSE(text.go_on()) << "it stays complete";
}

// The document must be one that a tuner takes, or all that was learnt is lost.
TEST_F(MemoryTextTest, TensorsMayComeAndGoMeanwhile) {
  bool completes = false;
  for (int before = 0; !completes; ++before) {
    Tuner changing(usual_candidates());
    ASSERT_TRUE(changing.recall(tuner.remember()).has_value());
    learn(changing, kDeclared, "w");
    MemoryText text(changing);
    for (int step = 0; step < before && !completes; ++step) completes = !text.go_on();
    changing.remove_tensor(kDeclared);
    learn(changing, kLater, "gone");
    come_and_go(changing, "new");
    finish(text);
    const json document = json::parse(text.take_text());
    for (const char* name : {"w", "bias", "gone", "long gone"}) {
      EXPECT_TRUE(document["tensors"].contains(name)) << name << " after " << before << " steps";
    }
    Tuner other(usual_candidates());
    const Status recalled = other.recall(document);
    ASSERT_TRUE(recalled.has_value()) << recalled.error().text << " after " << before << " steps";
  }
}

}  // namespace memory_text_test
}  // namespace tern::tuner
