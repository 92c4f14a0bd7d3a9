#include "daemon/lane/wire_trace.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace wire_trace_test {

class WireTraceTest : public testing::Test {
 protected:
  static TraceEvent begun_at(std::uint64_t ns) {
    TraceEvent event;
    event.begin_ns = ns;
    event.tensor = 7;
    return event;
  }
  std::vector<TraceEvent> seen() const { return ring_.read(0, 100).events; }

  TraceRing ring_;
  WireTrace trace_{ring_, 3};
};

TEST_F(WireTraceTest, IsFromTheFirstFrameToTheLastAcknowledgement) {
  ring_.start();
  trace_.departs(3, begun_at(100));
  trace_.departs(3, begun_at(150));  // to another node
  trace_.arrives(3, 400);
  ASSERT_EQ(seen().size(), 1u);
  EXPECT_EQ(seen()[0].begin_ns, 100u);
  EXPECT_EQ(seen()[0].end_ns, 400u);
  EXPECT_EQ(seen()[0].tensor, 7u);
  EXPECT_EQ(seen()[0].kind, TraceKind::wire);
}

TEST_F(WireTraceTest, ACookieThatComesAgainIsAnother) {
  ring_.start();
  trace_.departs(1, begun_at(100));
  trace_.arrives(1, 200);
  trace_.arrives(1, 300);  // of a frame that was not traced
  trace_.departs(1, begun_at(400));
  trace_.arrives(1, 500);
  ASSERT_EQ(seen().size(), 2u);
  EXPECT_EQ(seen()[1].begin_ns, 400u);
}

TEST_F(WireTraceTest, WhatIsUnderWayWhenTheRecordingEndsIsLeftOut) {
  ring_.start();
  trace_.departs(1, begun_at(100));
  ring_.stop();
  EXPECT_FALSE(trace_.on());
  trace_.arrives(1, 200);
  EXPECT_TRUE(seen().empty());
}

}  // namespace wire_trace_test
}  // namespace tern::daemon
