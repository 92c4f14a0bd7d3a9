// The thread of a shadow: what it measures, and that it ends.

#include <gtest/gtest.h>

#include <memory>
#include <semaphore>
#include <thread>

#include "block_values.h"
#include "daemon/lane/shadow.h"

namespace tern::daemon::shadow_thread_test {
namespace {

using group_test::ramp;
using group_test::recipe_of;

// Of one lane, with one candidate to measure.
struct Measuring {
  // A test that would wait for ever ends by its time limit.
  ShadowResult next_result() {
    woken.acquire();
    ShadowResult result;
    EXPECT_TRUE(shadow.pop(result)) << "a wake without a result";
    return result;
  }

  std::counting_semaphore<> woken{0};
  Shadow shadow{
      std::make_shared<CandidateRecipes>(CandidateRecipes{recipe_of("raw"), recipe_of("bf16")}), 1,
      [this] { woken.release(); }};
};

TEST(ShadowThread, CalibratesFirstAndThenMeasuresWhatIsOffered) {
  Measuring measuring;
  const auto values = ramp(100, 1, 1);
  measuring.shadow.offer(0, {42, DType::f32, values, nullptr, 1.0f});
  measuring.shadow.start();
  EXPECT_EQ(measuring.next_result().tensor, 0u);
  EXPECT_EQ(measuring.next_result().tensor, 42u);
  // The wake is before the slot is free.
  while (!measuring.shadow.has_room(0)) std::this_thread::yield();
  measuring.shadow.offer(0, {43, DType::f32, values, nullptr, 1.0f});
  EXPECT_EQ(measuring.next_result().tensor, 43u);
  EXPECT_GT(measuring.shadow.cpu_ns(), 0u);
}

TEST(ShadowThread, EndsWithItsOwnerWhetherItSleepsOrWorks) {
  for (int round = 0; round < 20; ++round) {
    Measuring measuring;
    measuring.shadow.start();
    if (round % 2 == 0) measuring.next_result();
  }
}

TEST(ShadowThread, OneThatWasNeverStartedEndsToo) {
  Measuring measuring;
  measuring.shadow.offer(0, {42, DType::f32, ramp(100, 1, 1), nullptr, 1.0f});
}

}  // namespace
}  // namespace tern::daemon::shadow_thread_test
