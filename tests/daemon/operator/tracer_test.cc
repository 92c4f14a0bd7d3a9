#include "daemon/operator/tracer.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

using nlohmann::json;

// Without lanes: what they record has tests of its own (trace_ring_test.cc).
class TracerTest : public ::testing::Test {
 protected:
  json ask(const char* action, const Tracer::Known& known = {}) {
    auto answer = tracer_.handle({{"action", action}}, known);
    return answer ? *answer : json(answer.error().text);
  }
  static Tracer::Known device(int number) {
    return {json::array(), json::array({{{"device", number}}}), json::array()};
  }

  ManualClock clock_;
  Tracer tracer_{clock_, {}};
};

TEST_F(TracerTest, KeepsWhatClientsSayOfDevicesFromTheStartToTheStop) {
  EXPECT_EQ(ask("start", device(1))["devices"].size(), 1u) << "where they are when it begins";
  tracer_.remember(device(2));
  const json stopped = ask("stop", device(3));
  EXPECT_EQ(stopped["devices"], (json{{{"device", 1}}, {{"device", 2}}, {{"device", 3}}}));
  EXPECT_EQ(stopped["devices_dropped"], 0);
  EXPECT_EQ(ask("stop", device(4))["devices"].size(), 3u) << "it has ended";
  EXPECT_EQ(ask("start")["devices"].size(), 0u);
}

TEST_F(TracerTest, IsToldOfTheSameOnce) {
  EXPECT_EQ(tracer_.devices_since_ns(), 0u) << "a recording begins with all devices";
  ask("start");
  EXPECT_EQ(tracer_.devices_since_ns(), clock_.now_ns());
  clock_.advance_ns(5);
  EXPECT_LT(tracer_.devices_since_ns(), clock_.now_ns());
  ask("status");
  EXPECT_LT(tracer_.devices_since_ns(), clock_.now_ns())
      << "an answer takes nothing from the recording";
  tracer_.remember({});
  EXPECT_EQ(tracer_.devices_since_ns(), clock_.now_ns());
  ask("stop");
  EXPECT_EQ(tracer_.devices_since_ns(), 0u);
}

TEST_F(TracerTest, HasABoundOnWhatItKeepsOfDevices) {
  ask("start");
  for (int i = 0; i < 5000; ++i) tracer_.remember(device(i));
  const json stopped = ask("stop");
  EXPECT_EQ(stopped["devices"].size(), 4096u);
  EXPECT_EQ(stopped["devices"][0]["device"], 5000 - 4096);
  EXPECT_EQ(stopped["devices_dropped"], 5000 - 4096);
}

TEST_F(TracerTest, HasABoundOnTheNamesOfTensors) {
  const auto declared = [](int from, int count) {
    json tensors = json::object();
    for (int id = from; id < from + count; ++id) tensors[std::to_string(id)] = "t";
    return Tracer::Known{json::array({{{"number", 1}, {"tensors", tensors}}}), json::array(),
                         json::array()};
  };
  EXPECT_EQ(ask("start", declared(0, 3))["has_unnamed"], false);
  for (int i = 0; i < 4; ++i) tracer_.remember(declared(i * 10'000, 10'000));
  const json stopped = ask("stop");
  EXPECT_EQ(stopped["groups"][0]["tensors"].size(), 32'768u);
  EXPECT_EQ(stopped["has_unnamed"], true);
  EXPECT_EQ(ask("start", declared(0, 3))["has_unnamed"], false);
}

}  // namespace
}  // namespace tern::daemon
