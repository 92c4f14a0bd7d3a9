#include "gpu/following_streams.h"

#include "fake_driver.h"
#include "gpu/stream_order.h"

namespace tern::gpu {
namespace following_streams_test {

class FollowingStreamsTest : public FakeDriverTest {
 protected:
  FollowingStreamsTest() {
    auto made = StreamOrder::create(*driver_);
    EXPECT_TRUE(made.has_value());
    order_ = std::move(*made);
  }
  ~FollowingStreamsTest() override { EXPECT_TRUE(fake().run_all()) << "what waits is held"; }
  Stream behind(std::uintptr_t program) {
    const auto found = streams_.behind(stream_of(program));
    return found ? (*found)->get() : nullptr;
  }
  // Something to do, until the stream runs.
  void load(Stream stream) {
    EXPECT_TRUE(order_->call_behind(stream, [] {}));
  }

  std::unique_ptr<Driver> driver_ = open();
  std::unique_ptr<StreamOrder> order_;
  FollowingStreams streams_{*driver_};
};

TEST_F(FollowingStreamsTest, StreamsOfTheProgramAreApart) {
  Stream first = behind(1000001);
  ASSERT_NE(first, nullptr);
  load(first);
  Stream second = behind(1000002);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  load(second);
  EXPECT_EQ(behind(1000001), first);
  EXPECT_EQ(behind(1000002), second);
}

TEST_F(FollowingStreamsTest, OneThatHasNothingToDoFollowsAnother) {
  Stream first = behind(1000001);
  load(first);
  EXPECT_NE(behind(1000002), first);
  EXPECT_TRUE(fake().run(first));
  load(behind(1000002));
  EXPECT_EQ(behind(1000003), first);
}

TEST_F(FollowingStreamsTest, TooManyAreRefusedUntilOneIsDone) {
  for (std::uintptr_t i = 0; i < FollowingStreams::kMost; ++i) load(behind(1000001 + i));
  const auto refused = streams_.behind(stream_of(2000000));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::would_block);
  EXPECT_TRUE(fake().run(behind(1000005)));
  EXPECT_NE(behind(2000000), nullptr);
}

TEST_F(FollowingStreamsTest, WhatTheDriverSaysIsHandedOn) {
  fake().fail("cuStreamCreateWithPriority", kOutOfMemory, 0);
  const auto refused = streams_.behind(stream_of(1000001));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
}

}  // namespace following_streams_test
}  // namespace tern::gpu
