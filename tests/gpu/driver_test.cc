#include "gpu/driver.h"

#include "fake_driver.h"

namespace tern::gpu {
namespace driver_test {

using testing::HasSubstr;
using DriverTest = FakeDriverTest;

std::string refusal() {
  const auto driver = Driver::open(TERN_FAKE_CUDA);
  return driver.has_value() ? "" : driver.error().text;
}

TEST_F(DriverTest, LooksAtTheDeviceOfTheCurrentContext) {
  const auto driver = open();
  EXPECT_EQ(driver->device().major, 9);
  EXPECT_EQ(driver->device().minor, 0);
  EXPECT_EQ(driver->device().shared_bytes, 227 * 1024);
}

TEST_F(DriverTest, WithoutADriverItSaysWhatToDo) {
  const auto driver = Driver::open("libno_such_driver.so.1");
  ASSERT_FALSE(driver.has_value());
  EXPECT_EQ(driver.error().code, Errc::unsupported);
  EXPECT_THAT(driver.error().text, HasSubstr("libno_such_driver.so.1"));
  EXPECT_THAT(driver.error().text, HasSubstr("install NVIDIA's driver"));
}

TEST_F(DriverTest, ALibraryThatIsNoDriverIsNamed) {
  const auto driver = Driver::open("libc.so.6");
  ASSERT_FALSE(driver.has_value());
  EXPECT_THAT(driver.error().text, HasSubstr("lacks cuInit"));
}

TEST_F(DriverTest, AnOldDriverIsRefused) {
  fake().set_version(11080);
  EXPECT_THAT(refusal(), HasSubstr("version 11.8; install one of 12.0 or later"));
}

TEST_F(DriverTest, WithoutAContextItIsRefused) {
  fake().set_context(false);
  EXPECT_THAT(refusal(), HasSubstr("whose CUDA context is current"));
}

TEST_F(DriverTest, ADeviceWithoutKernelsIsRefused) {
  fake().set_attribute(kAttributeMajor, 7);
  EXPECT_THAT(refusal(), HasSubstr("compute capability 7.0"));
  fake().reset();
  fake().set_attribute(kAttributeWordWaits, 0);
  EXPECT_THAT(refusal(), HasSubstr("cannot wait for words"));
}

TEST_F(DriverTest, EachCallThatFailsIsReported) {
  for (const char* const function : {"cuInit", "cuDriverGetVersion", "cuCtxGetCurrent",
                                     "cuCtxGetDevice", "cuDeviceGetAttribute"}) {
    fake().reset();
    fake().fail(function, 999, 0);
    EXPECT_THAT(refusal(), HasSubstr("CUDA_ERROR_OF_THE_FAKE (999)")) << function;
  }
}

}  // namespace driver_test
}  // namespace tern::gpu
