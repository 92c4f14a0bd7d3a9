#include "gpu/driver_api.h"

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace tern::gpu {
namespace driver_api_test {

static_assert(kSuccess == CUDA_SUCCESS);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kAlreadyRegistered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(kFirstOfCapture == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kLastOfCapture == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kAttributeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kAttributeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kAttributeShared == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kAttributeWordWaits == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
static_assert(kFunctionShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kWaitAtLeast == CU_STREAM_WAIT_VALUE_GEQ);
static_assert(kRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(kEventWithTime == CU_EVENT_DEFAULT);
static_assert(kEventWithoutTime == CU_EVENT_DISABLE_TIMING);
static_assert(kStreamApart == CU_STREAM_NON_BLOCKING);
static_assert(sizeof(DeviceAddress) == sizeof(CUdeviceptr));
static_assert(sizeof(DriverCode) == sizeof(CUresult));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));

}  // namespace driver_api_test
}  // namespace tern::gpu
#endif

namespace tern::gpu {

// All is said at compile time, where cuda.h is.
TEST(DriverApi, HasTheLayoutOfTheDriver) { EXPECT_EQ(sizeof(DeviceAddress), 8u); }

}  // namespace tern::gpu
