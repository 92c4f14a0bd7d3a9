#include "tests/cuda/test_gpu.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "gpu/primary_context.h"
#include "gpu/streams.h"
#include "tests/cuda/emulated_kernels.h"
#include "tests/gpu/chosen_target.h"

namespace tern::cuda {
namespace {

// Of the process.
const gpu::PrimaryContext& primary_context() {
  static const auto kMade = gpu::needed_for_test(gpu::PrimaryContext::make_current());
  return *kMade;
}

class RealGpu final : public TestGpu {
 public:
  RealGpu() { EXPECT_NE(context_.device_name(), ""); }

  const gpu::Driver& driver() override { return *driver_; }
  tern_cuda_options options() const override { return TERN_CUDA_OPTIONS_INIT; }
  // The first one is the default stream, which waits for all streams but those that say otherwise.
  gpu::Stream program_stream(std::size_t number) override {
    if (number == 0) return nullptr;
    while (streams_.size() < number) {
      streams_.push_back(gpu::needed_for_test(gpu::OwnStream::create(*driver_)));
    }
    return streams_[number - 1]->get();
  }
  bool run(gpu::Stream stream) override {
    return driver_->api().finish_stream(stream) == gpu::kSuccess;
  }
  void run_all() override {}  // they run by themselves

 private:
  const gpu::PrimaryContext& context_ = primary_context();
  std::unique_ptr<gpu::Driver> driver_ = gpu::needed_for_test(gpu::Driver::open());
  std::vector<std::unique_ptr<gpu::OwnStream>> streams_;
};

}  // namespace

std::unique_ptr<TestGpu> make_gpu() {
  if (gpu::tests_run_on_gpu()) return std::make_unique<RealGpu>();
  return std::make_unique<FakeGpu>();
}

FakeGpu::FakeGpu() : library_(dlopen(TERN_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL)) {
  gpu::FakeCuda* (*find)() = nullptr;
  void* const symbol = library_ != nullptr ? dlsym(library_, gpu::FakeCuda::kSymbol) : nullptr;
  EXPECT_NE(symbol, nullptr) << dlerror();
  std::memcpy(&find, &symbol, sizeof(find));
  fake_ = find();
  fake_->reset();
  fake_->set_runner(emulated_kernels(*fake_));
  driver_ = std::move(*gpu::Driver::open(TERN_FAKE_CUDA));
}

FakeGpu::~FakeGpu() {
  EXPECT_EQ(fake_->held(), 0);
  driver_.reset();
  dlclose(library_);
}

tern_cuda_options FakeGpu::options() const {
  tern_cuda_options options = TERN_CUDA_OPTIONS_INIT;
  options.driver = TERN_FAKE_CUDA;
  options.image = "image";
  return options;
}

}  // namespace tern::cuda
