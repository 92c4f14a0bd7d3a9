#include "gpu/stream_order.h"

#include <vector>

#include "fake_driver.h"
#include "gpu/stream_words.h"

namespace tern::gpu {
namespace stream_order_test {

class StreamOrderTest : public FakeDriverTest {
 protected:
  StreamOrderTest() {
    auto made = StreamOrder::create(*driver_);
    EXPECT_TRUE(made.has_value());
    order_ = std::move(*made);
  }

  std::unique_ptr<Driver> driver_ = open();
  std::unique_ptr<StreamOrder> order_;
  Stream program_ = stream_of(1);
  Stream tern_ = stream_of(2);
};

TEST_F(StreamOrderTest, KernelsRunBehindTheProgramsWork) {
  bool reached = false;
  ASSERT_TRUE(order_->follow(tern_, program_));
  ASSERT_TRUE(order_->call_behind(tern_, [&] { reached = true; }));
  EXPECT_FALSE(fake().run(tern_));
  EXPECT_FALSE(reached);
  EXPECT_TRUE(fake().run(program_));
  EXPECT_TRUE(fake().run(tern_));
  EXPECT_TRUE(reached);
}

// Two operations on two streams, the later one done first.
TEST_F(StreamOrderTest, CallsComeInAnyOrder) {
  std::vector<int> done;
  ASSERT_TRUE(order_->call_behind(program_, [&] { done.push_back(1); }));
  ASSERT_TRUE(order_->call_behind(tern_, [&] { done.push_back(2); }));
  EXPECT_TRUE(fake().run(tern_));
  EXPECT_TRUE(fake().run(program_));
  EXPECT_EQ(done, (std::vector<int>{2, 1}));
}

// The way of an operation: the program's work, the kernels, the call that submits, the program's
// stream that waits for the result.
TEST_F(StreamOrderTest, AStreamWaitsForItsOperation) {
  const auto words = StreamWords::create(*driver_, 1);
  ASSERT_TRUE(words.has_value());
  bool submitted = false;
  bool went_on = false;
  ASSERT_TRUE(order_->follow(tern_, program_));
  ASSERT_TRUE(order_->call_behind(tern_, [&] { submitted = true; }));
  ASSERT_TRUE((*words)->wait(program_, 0, 1));
  ASSERT_TRUE(order_->call_behind(program_, [&] { went_on = true; }));
  EXPECT_FALSE(fake().run(program_));
  EXPECT_TRUE(fake().run(tern_));
  EXPECT_TRUE(submitted);
  EXPECT_FALSE(went_on);
  (*words)->release(0, 1);
  EXPECT_TRUE(fake().run(program_));
  EXPECT_TRUE(went_on);
}

TEST_F(StreamOrderTest, WhatFailsIsReportedAndForgotten) {
  fake().fail("cuEventRecord", 999, 0);
  EXPECT_FALSE(order_->follow(tern_, program_).has_value());
  fake().fail("cuStreamWaitEvent", 999, 0);
  EXPECT_FALSE(order_->follow(tern_, program_).has_value());
  fake().fail("cuLaunchHostFunc", kInvalidContext, 0);
  const auto called = order_->call_behind(tern_, [] { FAIL(); });
  ASSERT_FALSE(called.has_value());
  EXPECT_THAT(called.error().text, testing::HasSubstr("whose CUDA context is current"));
  fake().run(program_);
  EXPECT_TRUE(fake().run(tern_));
  fake().fail("cuEventCreate", 999, 0);
  EXPECT_FALSE(StreamOrder::create(*driver_).has_value());
}

}  // namespace stream_order_test
}  // namespace tern::gpu
