#include "gpu/streams.h"

#include "fake_driver.h"
#include "gpu/stream_order.h"

namespace tern::gpu {
namespace streams_test {

using testing::Contains;
using testing::HasSubstr;

class GpuStreamsTest : public FakeDriverTest {
 protected:
  std::unique_ptr<Driver> driver_ = open();
};

TEST_F(GpuStreamsTest, AContextIsCurrentWhileTheScopeLives) {
  {
    const ContextScope scope(*driver_);
    EXPECT_TRUE(scope.entered());
    EXPECT_THAT(fake().calls(), Contains("cuCtxPushCurrent_v2"));
    EXPECT_THAT(fake().calls(), testing::Not(Contains("cuCtxPopCurrent_v2")));
  }
  EXPECT_EQ(fake().calls().back(), "cuCtxPopCurrent_v2");
}

TEST_F(GpuStreamsTest, AContextThatCannotBeEnteredIsNotLeft) {
  fake().fail("cuCtxPushCurrent_v2", kInvalidContext, 0);
  const ContextScope scope(*driver_);
  const auto entered = scope.entered();
  ASSERT_FALSE(entered.has_value());
  EXPECT_THAT(entered.error().text, HasSubstr("enter the CUDA context"));
}

TEST_F(GpuStreamsTest, AStreamIsIdleWhenAllOfItIsDone) {
  const auto stream = OwnStream::create(*driver_);
  ASSERT_TRUE(stream.has_value());
  const auto order = StreamOrder::create(*driver_);
  ASSERT_TRUE(order.has_value());
  EXPECT_TRUE(*(*stream)->is_idle());
  bool called = false;
  ASSERT_TRUE((*order)->call_behind((*stream)->get(), [&] { called = true; }));
  EXPECT_FALSE(*(*stream)->is_idle());
  EXPECT_TRUE((*stream)->finish());
  EXPECT_TRUE(called);
  EXPECT_TRUE(*(*stream)->is_idle());
}

TEST_F(GpuStreamsTest, ALostContextIsAnErrorAndNotIdle) {
  const auto stream = OwnStream::create(*driver_);
  ASSERT_TRUE(stream.has_value());
  fake().fail("cuStreamQuery", 700, 0);
  const auto idle = (*stream)->is_idle();
  ASSERT_FALSE(idle.has_value());
  EXPECT_THAT(idle.error().text, HasSubstr("the CUDA context is lost"));
}

TEST_F(GpuStreamsTest, AStopwatchTellsTheTimeOfAStretch) {
  const auto watch = Stopwatch::create(*driver_);
  ASSERT_TRUE(watch.has_value());
  ASSERT_TRUE((*watch)->begin(stream_of(1)));
  ASSERT_TRUE((*watch)->end(stream_of(1)));
  fake().run(stream_of(1));
  EXPECT_EQ((*watch)->elapsed_ns(), 500000u);
  fake().fail("cuEventElapsedTime", kNotReady, 0);
  EXPECT_EQ((*watch)->elapsed_ns(), 0u);
}

TEST_F(GpuStreamsTest, WhatCannotBeMadeIsReported) {
  fake().fail("cuStreamCreateWithPriority", kOutOfMemory, 0);
  EXPECT_FALSE(OwnStream::create(*driver_).has_value());
  fake().fail("cuEventCreate", kOutOfMemory, 1);
  EXPECT_FALSE(Stopwatch::create(*driver_).has_value());
  EXPECT_EQ(fake().held(), 0);
}

}  // namespace streams_test
}  // namespace tern::gpu
