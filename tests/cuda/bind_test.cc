// What can be opened and bound, and what is said where it cannot.

#include <cstdlib>

#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace bind_test {

using testing::HasSubstr;

class CudaOpen : public testing::Test {
 protected:
  tern_status open(const tern_cuda_options& options) {
    const tern_status status = tern_cuda_open(node_.client(), &options, &cuda_);
    if (status == TERN_OK) {
      EXPECT_EQ(tern_cuda_close(cuda_), TERN_OK);
    }
    return status;
  }

  FakeGpu gpu_;
  Node node_{daemons()[0], new_job()};
  tern_cuda* cuda_ = nullptr;
};

TEST_F(CudaOpen, GivesBackAllThatItTakes) {
  EXPECT_EQ(open(gpu_.options()), TERN_OK) << tern_cuda_error_detail();
}

TEST_F(CudaOpen, AnOldDriverOrDeviceIsRefusedWithAWayOut) {
  gpu_.fake().set_version(11080);
  EXPECT_EQ(open(gpu_.options()), TERN_ERR_UNSUPPORTED);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("install one of 12.0 or later"));
  gpu_.fake().set_version(13000);
  gpu_.fake().set_attribute(gpu::kAttributeMajor, 7);
  EXPECT_EQ(open(gpu_.options()), TERN_ERR_UNSUPPORTED);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("keep tensors in the processor's memory"));
}

TEST_F(CudaOpen, WithoutADriverOrAContextItIsRefused) {
  tern_cuda_options options = gpu_.options();
  options.driver = "libno_such_driver.so.1";
  EXPECT_EQ(open(options), TERN_ERR_UNSUPPORTED);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("install NVIDIA's driver"));
  gpu_.fake().set_context(false);
  EXPECT_EQ(open(gpu_.options()), TERN_ERR_INTERNAL);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("whose CUDA context is current"));
}

TEST_F(CudaOpen, OneQueueForAllStreamsIsRefused) {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  EXPECT_EQ(open(gpu_.options()), TERN_ERR_UNSUPPORTED);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("unset it, or set it to 8 or more"));
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  EXPECT_EQ(open(gpu_.options()), TERN_OK) << tern_cuda_error_detail();
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

TEST_F(CudaOpen, OptionsOfWrongSizeAreRefused) {
  tern_cuda_options options = gpu_.options();
  options.struct_size = 8;
  EXPECT_EQ(open(options), TERN_ERR_INVALID_ARGUMENT);
  options = gpu_.options();
  options.operations = 513;
  EXPECT_EQ(open(options), TERN_ERR_INVALID_ARGUMENT);
}

TEST_F(CudaOpen, EachCallThatFailsIsReportedAndForgotten) {
  for (const char* const function :
       {"cuModuleLoadData", "cuModuleGetFunction", "cuCtxGetStreamPriorityRange",
        "cuStreamCreateWithPriority", "cuEventCreate", "cuMemHostRegister_v2",
        "cuMemHostGetDevicePointer_v2"}) {
    const int held = gpu_.fake().held();
    gpu_.fake().fail(function, 999, 0);
    EXPECT_EQ(open(gpu_.options()), TERN_ERR_INTERNAL) << function;
    EXPECT_EQ(gpu_.fake().held(), held) << function;
  }
}

struct Refusal {
  const char* recipe;
  std::uint64_t count;
  bool client_blocks;
  tern_dtype dtype;
  tern_status status;
  const char* text;
};

TEST(CudaBind, WhatHasNoKernelsIsRefusedWithAWayOut) {
  const Refusal refusals[] = {
      {"3lc", kLarge, false, TERN_F32, TERN_ERR_UNKNOWN_TENSOR, "without client_blocks"},
      {"3lc", kLarge, true, TERN_BF16, TERN_ERR_UNSUPPORTED, "kernels take tensors of f32"},
      {"topk:p=0.01", kLarge, true, TERN_F32, TERN_ERR_UNSUPPORTED, "no kernels for the recipe"}};
  for (const Refusal& refusal : refusals) {
    FakeGpu gpu;
    const std::string job = new_job();
    Node node(daemons()[0], job), other(daemons()[1], job);
    Node::join({&node, &other});
    node.declare(refusal.recipe, refusal.count, refusal.client_blocks, refusal.dtype);
    GpuNode on_gpu(gpu, node, refusal.count, false);
    EXPECT_EQ(on_gpu.bind(), refusal.status);
    EXPECT_THAT(tern_cuda_error_detail(), HasSubstr(refusal.text));
  }
}

class CudaBindFailing : public testing::Test {
 protected:
  CudaBindFailing() {
    Node::join({&node_, &other_});
    node_.declare("3lc", kLarge, true);
  }

  FakeGpu gpu_;
  std::string job_ = new_job();
  Node node_{daemons()[0], job_};
  Node other_{daemons()[1], job_};
};

TEST_F(CudaBindFailing, PinningThatFailsIsCountedAndNamesCauseAndRemedy) {
  GpuNode on_gpu(gpu_, node_, kLarge, false);
  gpu_.fake().fail("cuMemHostRegister_v2", gpu::kOutOfMemory, 0);
  EXPECT_EQ(on_gpu.bind(), TERN_ERR_OUT_OF_MEMORY);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("cannot pin"));
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("lock less memory"));
  EXPECT_EQ(on_gpu.stats().pinning_failures, 1u);
  EXPECT_EQ(on_gpu.bind(), TERN_OK) << tern_cuda_error_detail();
  EXPECT_EQ(on_gpu.stats().pinning_failures, 1u);
}

TEST_F(CudaBindFailing, EachCallThatFailsGivesBackWhatWasTaken) {
  GpuNode on_gpu(gpu_, node_, kLarge, false);
  const int held = gpu_.fake().held();
  for (const char* const function :
       {"cuMemAlloc_v2", "cuMemHostRegister_v2", "cuMemcpyHtoDAsync_v2"}) {
    for (int after = 0; after < 2; ++after) {
      gpu_.fake().fail(function, gpu::kOutOfMemory, after);
      EXPECT_EQ(on_gpu.bind(), TERN_ERR_OUT_OF_MEMORY) << function << after;
      EXPECT_EQ(gpu_.fake().held(), held) << function << after;
      EXPECT_EQ(on_gpu.stats().device_bytes, 0u);
    }
  }
  ASSERT_EQ(on_gpu.bind(), TERN_OK) << tern_cuda_error_detail();
  // The residual of two chunks of five or three, twice.
  EXPECT_GT(on_gpu.stats().device_bytes, 4 * std::size_t{4096} * sizeof(float));
  EXPECT_GE(on_gpu.stats().pinned_bytes, kLarge * sizeof(float));
}

TEST_F(CudaBindFailing, AnArenaThatIsFullIsReported) {
  GpuNode on_gpu(gpu_, node_, kLarge, false);
  void* memory = nullptr;
  std::size_t bytes = 16 << 20;
  while (tern_alloc(node_.client(), bytes, &memory) != TERN_OK) bytes -= 64 << 10;
  EXPECT_EQ(on_gpu.bind(), TERN_ERR_OUT_OF_MEMORY);
  EXPECT_EQ(tern_free(node_.client(), memory), TERN_OK);
}

TEST_F(CudaBindFailing, ATensorKeepsItsContextOpen) {
  GpuNode on_gpu(gpu_, node_, kLarge);
  EXPECT_EQ(tern_cuda_close(on_gpu.cuda()), TERN_ERR_WOULD_BLOCK);
  EXPECT_THAT(tern_cuda_error_detail(), HasSubstr("release them first"));
}

}  // namespace bind_test
}  // namespace tern::cuda
