// docs/counters-file.md repeats the layout for readers; here it is compared with the code.

#include <gtest/gtest.h>

#include <string>

#include "counters/layout.h"
#include "tests/layout_page.h"

namespace tern::counters {
namespace {

// The page gives sizes in place of types.
#define EXPECT_SIZED_FIELD(section, struct_name, field)              \
  ::tern::testing::expect_row(section, offsetof(struct_name, field), \
                              std::to_string(sizeof(struct_name::field)), #field)

TEST(CountersFilePage, HeaderAndDescriptorAgree) {
  const std::string text = testing::LayoutPage(TERN_COUNTERS_FILE_PAGE).section("Bytes");
  EXPECT_SIZED_FIELD(text, FileHeader, magic);
  EXPECT_SIZED_FIELD(text, FileHeader, version);
  EXPECT_SIZED_FIELD(text, FileHeader, header_bytes);
  EXPECT_SIZED_FIELD(text, FileHeader, file_bytes);
  EXPECT_SIZED_FIELD(text, FileHeader, pid);
  EXPECT_SIZED_FIELD(text, FileHeader, started_ns);
  EXPECT_SIZED_FIELD(text, FileHeader, written_ns);
  EXPECT_SIZED_FIELD(text, FileHeader, counter_count);
  EXPECT_SIZED_FIELD(text, FileHeader, descriptor_bytes);
  EXPECT_SIZED_FIELD(text, FileHeader, descriptors_offset);
  EXPECT_SIZED_FIELD(text, FileHeader, node_id);
  EXPECT_SIZED_FIELD(text, FileHeader, software);
  EXPECT_SIZED_FIELD(text, Descriptor, name);
  EXPECT_SIZED_FIELD(text, Descriptor, unit);
  EXPECT_SIZED_FIELD(text, Descriptor, help);
  EXPECT_SIZED_FIELD(text, Descriptor, offset);
  EXPECT_SIZED_FIELD(text, Descriptor, stride);
  EXPECT_SIZED_FIELD(text, Descriptor, instances);
  EXPECT_SIZED_FIELD(text, Descriptor, kind);
}

}  // namespace
}  // namespace tern::counters
