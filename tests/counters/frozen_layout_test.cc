// The bytes of the counters file, version 1, in numbers of this test's own. Tools outside of this
// tree read them: what is here never changes, a later version gets a list of its own.

#include <gtest/gtest.h>

#include <cstring>

#include "counters/layout.h"

namespace tern::counters {
namespace {

TEST(FrozenCountersLayout, HeaderOfVersion1) {
  EXPECT_EQ(kVersion, 1u);
  char magic[8];
  std::memcpy(magic, &kMagic, sizeof(magic));
  EXPECT_EQ(std::string(magic, 8), "TERNCNTR");
  EXPECT_EQ(sizeof(FileHeader), 192u);
  EXPECT_EQ(offsetof(FileHeader, magic), 0u);
  EXPECT_EQ(offsetof(FileHeader, version), 8u);
  EXPECT_EQ(offsetof(FileHeader, header_bytes), 12u);
  EXPECT_EQ(offsetof(FileHeader, file_bytes), 16u);
  EXPECT_EQ(offsetof(FileHeader, pid), 24u);
  EXPECT_EQ(offsetof(FileHeader, started_ns), 32u);
  EXPECT_EQ(offsetof(FileHeader, written_ns), 40u);
  EXPECT_EQ(offsetof(FileHeader, counter_count), 48u);
  EXPECT_EQ(offsetof(FileHeader, descriptor_bytes), 52u);
  EXPECT_EQ(offsetof(FileHeader, descriptors_offset), 56u);
  EXPECT_EQ(offsetof(FileHeader, node_id), 64u);
  EXPECT_EQ(offsetof(FileHeader, software), 104u);
  EXPECT_EQ(offsetof(FileHeader, reserved), 128u);
}

TEST(FrozenCountersLayout, DescriptorOfVersion1) {
  EXPECT_EQ(sizeof(Descriptor), 256u);
  EXPECT_EQ(offsetof(Descriptor, name), 0u);
  EXPECT_EQ(sizeof(Descriptor::name), 48u);
  EXPECT_EQ(offsetof(Descriptor, unit), 48u);
  EXPECT_EQ(sizeof(Descriptor::unit), 16u);
  EXPECT_EQ(offsetof(Descriptor, help), 64u);
  EXPECT_EQ(sizeof(Descriptor::help), 160u);
  EXPECT_EQ(offsetof(Descriptor, offset), 224u);
  EXPECT_EQ(offsetof(Descriptor, stride), 232u);
  EXPECT_EQ(offsetof(Descriptor, instances), 240u);
  EXPECT_EQ(offsetof(Descriptor, kind), 244u);
  EXPECT_EQ(offsetof(Descriptor, reserved), 245u);
  EXPECT_EQ(static_cast<int>(Kind::counter), 0);
  EXPECT_EQ(static_cast<int>(Kind::gauge), 1);
}

}  // namespace
}  // namespace tern::counters
