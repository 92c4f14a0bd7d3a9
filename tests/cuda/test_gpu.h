#pragma once

#include <cstdint>
#include <memory>

#include "cuda/include/tern/cuda.h"
#include "gpu/driver.h"
#include "tests/gpu/fake_cuda.h"

// The GPU of a test, with the program's context on it.
namespace tern::cuda {

class TestGpu {
 public:
  virtual ~TestGpu() = default;

  virtual const gpu::Driver& driver() = 0;
  virtual tern_cuda_options options() const = 0;
  virtual gpu::Stream program_stream(std::size_t number = 0) = 0;
  // Goes on with a stream as far as it gets. True: all that was enqueued is done.
  virtual bool run(gpu::Stream stream) = 0;
  virtual void run_all() = 0;
};

// The fake driver's, or the first of this machine if TERN_TEST_TARGET=gpu.
std::unique_ptr<TestGpu> make_gpu();

// The fake driver as it is when no test has told it anything, with kernels that run.
class FakeGpu final : public TestGpu {
 public:
  FakeGpu();
  ~FakeGpu() override;
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  gpu::FakeCuda& fake() { return *fake_; }
  static gpu::Stream stream(std::size_t number = 0) {
    return reinterpret_cast<gpu::Stream>(std::uintptr_t{1000001} + number);
  }

  const gpu::Driver& driver() override { return *driver_; }
  tern_cuda_options options() const override;
  gpu::Stream program_stream(std::size_t number = 0) override { return stream(number); }
  bool run(gpu::Stream stream) override { return fake_->run(stream); }
  void run_all() override { fake_->run_all(); }

 private:
  void* library_;
  gpu::FakeCuda* fake_ = nullptr;
  std::unique_ptr<gpu::Driver> driver_;
};

}  // namespace tern::cuda
