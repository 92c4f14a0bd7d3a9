#include "rdma/carriage_note.h"

#include <gtest/gtest.h>

#include "tests/rdma/mock/fabric.h"

namespace tern::rdma {
namespace carriage_note_test {
namespace {

TEST(CarriageNote, SaysWhyItStaysAndWhereItMoves) {
  CarriageNote note;
  EXPECT_STREQ(note.text(), "");
  note.stay("no device");
  EXPECT_STREQ(note.text(), "no device");
  note.move_to("mock0:1");
  EXPECT_STREQ(note.text(), "mock0:1");
}

TEST(CarriageNote, SaysThatFramesAreCopiedWhileTheyAre) {
  mock::Fabric fabric;
  RdmaSettings settings;
  settings.node_directory = fabric.nodes().string();
  auto device = Device::open(settings);
  ASSERT_TRUE(device);
  LaneMemory memory(0);  // nothing may be registered
  memory.use(*device);
  const std::vector<std::byte> bytes(100);
  CarriageNote note;
  note.move_to("mock0:1");
  memory.remember(bytes);
  EXPECT_FALSE(memory.key_of(bytes).value);
  note.follow("mock0:1", memory);
  EXPECT_EQ(std::string(note.text()).find("mock0:1; frames are copied: the limit"), 0u)
      << note.text();
  memory.forget(bytes);
  note.follow("mock0:1", memory);
  EXPECT_STREQ(note.text(), "mock0:1");
}

}  // namespace
}  // namespace carriage_note_test
}  // namespace tern::rdma
