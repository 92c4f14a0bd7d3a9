#include "gpu/kernels.h"

#include <fstream>
#include <sstream>

#include "fake_driver.h"

namespace tern::gpu {
namespace kernels_test {

using testing::Contains;
using testing::HasSubstr;

class KernelsTest : public FakeDriverTest {
 protected:
  std::unique_ptr<Driver> driver_ = open();
};

TEST_F(KernelsTest, FindsEachKernelAndGivesItTheSharedMemory) {
  const auto kernels = Kernels::load(*driver_, "image");
  ASSERT_TRUE(kernels.has_value()) << kernels.error().text;
  const auto calls = fake().calls();
  for (const char* const name : kKernelNames) {
    EXPECT_THAT(calls, Contains(std::string("cuModuleGetFunction ") + name));
  }
  EXPECT_THAT(calls, Contains("cuFuncSetAttribute 8 232448").Times(int{kKernelCount}));
}

TEST_F(KernelsTest, TheNamesAreThoseOfTheSource) {
  std::ifstream file(TERN_KERNEL_SOURCE);
  std::stringstream text;
  text << file.rdbuf();
  std::size_t entries = 0;
  for (std::size_t at = 0; (at = text.str().find("\nTERN_KERNEL ", at)) != std::string::npos;
       ++at) {
    ++entries;
  }
  EXPECT_EQ(entries, kKernelCount);
  for (const char* const name : kKernelNames) {
    EXPECT_THAT(text.str(), HasSubstr(std::string("TERN_KERNEL ") + name + "("));
  }
}

TEST_F(KernelsTest, LaunchesABlockOfThreadsForEachChunk) {
  const auto kernels = Kernels::load(*driver_, "image");
  ASSERT_TRUE(kernels.has_value());
  ASSERT_TRUE((*kernels)->launch({Kernel::threelc_encode, 7, 160000, nullptr}, stream_of(1)));
  EXPECT_EQ(fake().calls().back(), "cuLaunchKernelEx 7 512 160000");
  const std::size_t before = fake().calls().size();
  ASSERT_TRUE((*kernels)->launch({Kernel::threelc_encode, 0, 160000, nullptr}, stream_of(1)));
  EXPECT_EQ(fake().calls().size(), before);
}

TEST_F(KernelsTest, AChunkThatIsTooLargeForTheDeviceIsRefused) {
  fake().reset();
  fake().set_attribute(kAttributeMajor, 8);
  fake().set_attribute(kAttributeShared, 163 * 1024);
  const auto driver = open();
  const auto kernels = Kernels::load(*driver, "image");
  ASSERT_TRUE(kernels.has_value());
  const auto launched =
      (*kernels)->launch({Kernel::threelc_encode, 1, 200000, nullptr}, stream_of(1));
  ASSERT_FALSE(launched.has_value());
  EXPECT_THAT(launched.error().text, HasSubstr("use smaller chunks"));
}

TEST_F(KernelsTest, WhatFailsGivesBackTheModule) {
  fake().fail("cuModuleLoadData", kNoBinaryForGpu, 0);
  auto kernels = Kernels::load(*driver_, "image");
  ASSERT_FALSE(kernels.has_value());
  EXPECT_THAT(kernels.error().text, HasSubstr("no kernels for the GPU"));
  for (const char* const function : {"cuModuleGetFunction", "cuFuncSetAttribute"}) {
    fake().fail(function, 500, 4);
    kernels = Kernels::load(*driver_, "image");
    EXPECT_FALSE(kernels.has_value()) << function;
    EXPECT_EQ(fake().held(), 0);
  }
}

TEST_F(KernelsTest, ALaunchThatFailsIsReported) {
  const auto kernels = Kernels::load(*driver_, "image");
  ASSERT_TRUE(kernels.has_value());
  fake().fail("cuLaunchKernelEx", kOutOfMemory, 0);
  const auto launched = (*kernels)->launch({Kernel::bf16_add, 1, 0, nullptr}, stream_of(1));
  ASSERT_FALSE(launched.has_value());
  EXPECT_EQ(launched.error().code, Errc::out_of_memory);
}

}  // namespace kernels_test
}  // namespace tern::gpu
