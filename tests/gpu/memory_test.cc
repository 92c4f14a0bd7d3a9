#include "gpu/memory.h"

#include <vector>

#include "fake_driver.h"

namespace tern::gpu {
namespace memory_test {

using testing::HasSubstr;

class GpuMemoryTest : public FakeDriverTest {
 protected:
  std::unique_ptr<Driver> driver_ = open();
  std::vector<std::byte> arena_ = std::vector<std::byte>(4096);
};

TEST_F(GpuMemoryTest, ThePinnedArenaIsSeenByTheDevice) {
  const auto range = PinnedRange::pin(*driver_, arena_);
  ASSERT_TRUE(range.has_value()) << range.error().text;
  EXPECT_EQ((*range)->address_of(arena_.data() + 96) - (*range)->address_of(arena_.data()), 96u);
}

TEST_F(GpuMemoryTest, AnArenaThatCannotBePinnedIsReported) {
  fake().fail("cuMemHostRegister_v2", kOutOfMemory, 0);
  const auto range = PinnedRange::pin(*driver_, arena_);
  ASSERT_FALSE(range.has_value());
  EXPECT_EQ(range.error().code, Errc::out_of_memory);
  EXPECT_THAT(range.error().text, HasSubstr("cannot pin the arena"));
}

TEST_F(GpuMemoryTest, AnArenaThatCannotBeMappedIsUnpinned) {
  fake().fail("cuMemHostGetDevicePointer_v2", 999, 0);
  EXPECT_FALSE(PinnedRange::pin(*driver_, arena_).has_value());
  EXPECT_EQ(fake().held(), 0);
}

TEST_F(GpuMemoryTest, AResidualIsClearedOnTheStreamThatUsesIt) {
  const auto array = DeviceArray::allocate(*driver_, 1024, stream_of(3));
  ASSERT_TRUE(array.has_value()) << array.error().text;
  EXPECT_NE((*array)->address(), 0u);
  EXPECT_EQ(fake().calls().back(), "cuMemsetD8Async 0 1024");
}

TEST_F(GpuMemoryTest, ExhaustedDeviceMemoryIsReported) {
  fake().fail("cuMemAlloc_v2", kOutOfMemory, 0);
  const auto array = DeviceArray::allocate(*driver_, 1024, stream_of(3));
  ASSERT_FALSE(array.has_value());
  EXPECT_THAT(array.error().text, HasSubstr("free device memory"));
}

TEST_F(GpuMemoryTest, AResidualThatCannotBeClearedIsGivenBack) {
  fake().fail("cuMemsetD8Async", 999, 0);
  EXPECT_FALSE(DeviceArray::allocate(*driver_, 1024, stream_of(3)).has_value());
  EXPECT_EQ(fake().held(), 0);
}

}  // namespace memory_test
}  // namespace tern::gpu
