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

TEST_F(GpuMemoryTest, PagesAreTheLibrarysOwnAndZeroAtFirst) {
  const auto pages = PinnedPages::create(*driver_, 100);
  ASSERT_TRUE(pages.has_value()) << pages.error().text;
  EXPECT_EQ((*pages)->bytes() % page_bytes(), 0u);
  EXPECT_EQ((*pages)->address() % page_bytes(), 0u);
  EXPECT_EQ((*pages)->data()[99], std::byte{0});
  fake().fail("cuMemHostRegister_v2", kAlreadyRegistered, 0);
  const auto refused = PinnedPages::create(*driver_, 100);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().text, HasSubstr("unpin it first"));
}

TEST_F(GpuMemoryTest, CopiesAreDoneWhenTheStreamGetsThere) {
  const auto array = DeviceArray::allocate(*driver_, 64, stream_of(3));
  ASSERT_TRUE(array.has_value());
  const std::vector<std::byte> given(64, std::byte{5});
  std::vector<std::byte> seen(64);
  ASSERT_TRUE(copy_up(*driver_, (*array)->address(), given, stream_of(3)));
  ASSERT_TRUE(copy_down(*driver_, seen, (*array)->address(), stream_of(3)));
  EXPECT_EQ(seen[63], std::byte{0});
  EXPECT_TRUE(fake().run(stream_of(3)));
  EXPECT_EQ(seen, given);
  fake().fail("cuMemcpyHtoDAsync_v2", 999, 0);
  EXPECT_FALSE(copy_up(*driver_, (*array)->address(), given, stream_of(3)));
  EXPECT_TRUE(copy_up(*driver_, (*array)->address(), {}, stream_of(3)));
}

}  // namespace memory_test
}  // namespace tern::gpu
