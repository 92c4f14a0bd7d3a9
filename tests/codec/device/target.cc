#include "tests/codec/device/target.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "codec/device/emulation/memory.h"
#include "gpu/memory.h"
#include "gpu/primary_context.h"
#include "gpu/streams.h"
#include "tests/gpu/chosen_target.h"

namespace tern::codec::device {
namespace {

constexpr std::uint32_t kThreads = gpu::Kernels::kThreads;

// Watched by units of this type.
template <typename Unit>
class EmulatedMemory final : public DeviceMemory {
 public:
  EmulatedMemory(std::size_t units, std::span<const std::byte> values)
      : buffer_(
            values.empty()
                ? emulation::Buffer<Unit>(units)
                : emulation::Buffer<Unit>(std::span<const Unit>(
                      static_cast<const Unit*>(static_cast<const void*>(values.data())), units))) {}
  std::byte* address() override { return std::as_writable_bytes(buffer_.span()).data(); }
  void read(std::span<std::byte> to) override {
    if (!to.empty()) std::memcpy(to.data(), address(), to.size());
  }

 private:
  emulation::Buffer<Unit> buffer_;
};

class Emulation final : public Target {
 public:
  std::unique_ptr<DeviceMemory> allocate(std::size_t count, std::size_t element_bytes,
                                         std::span<const std::byte> values) override {
    switch (element_bytes) {
      case 4:
        return std::make_unique<EmulatedMemory<std::uint32_t>>(count, values);
      case 2:
        return std::make_unique<EmulatedMemory<std::uint16_t>>(count, values);
      default:
        return std::make_unique<EmulatedMemory<std::byte>>(count * element_bytes, values);
    }
  }
  LaunchReport launch(const KernelCall& call, std::uint32_t chunks,
                      const LaunchOptions& options) override {
    return emulation::launch({chunks, kThreads}, options, call.emulated);
  }
  bool schedules_itself() const noexcept override { return false; }
};

using gpu::needed_for_test;

void need(const Status& done) {
  if (done) return;
  std::cerr << "the test cannot go on: " << done.error().text << '\n';
  std::exit(EXIT_FAILURE);
}

std::vector<char> image_of_kernels() {
  const char* const named = std::getenv("TERN_KERNEL_IMAGE");
  const std::string path = named != nullptr ? named : TERN_KERNEL_IMAGE_FILE;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  if (!image.empty()) return image;
  std::cerr << "cannot test on a GPU: no kernels are in \"" << path
            << "\"; build with nvcc, or set TERN_KERNEL_IMAGE\n";
  std::exit(gpu::kTestSkipped);
}

class Gpu final : public Target {
 public:
  std::unique_ptr<DeviceMemory> allocate(std::size_t count, std::size_t element_bytes,
                                         std::span<const std::byte> values) override;
  LaunchReport launch(const KernelCall& call, std::uint32_t chunks,
                      const LaunchOptions& /*options*/) override {
    const auto shared = static_cast<std::uint32_t>(driver_->device().shared_bytes);
    LaunchReport report;
    report.shared_bytes = shared;
    auto done = kernels_->launch({call.kernel, chunks, shared, call.parameters}, stream_->get());
    if (done) done = stream_->finish();
    if (!done) report.finding = done.error().text;
    return report;
  }
  bool schedules_itself() const noexcept override { return true; }

  const gpu::Driver& driver() const noexcept { return *driver_; }
  const gpu::OwnStream& stream() const noexcept { return *stream_; }

 private:
  std::vector<char> image_ = image_of_kernels();
  std::unique_ptr<gpu::PrimaryContext> context_ =
      needed_for_test(gpu::PrimaryContext::make_current());
  std::unique_ptr<gpu::Driver> driver_ = needed_for_test(gpu::Driver::open());
  std::unique_ptr<gpu::Kernels> kernels_ =
      needed_for_test(gpu::Kernels::load(*driver_, image_.data()));
  std::unique_ptr<gpu::OwnStream> stream_ = needed_for_test(gpu::OwnStream::create(*driver_));
};

class GpuMemory final : public DeviceMemory {
 public:
  // Filled with bytes that make no sense, as the emulation's. One more than asked for, because a
  // driver has no empty arrays.
  GpuMemory(const Gpu& gpu, std::size_t bytes)
      : gpu_(gpu), array_(needed_for_test(gpu::DeviceArray::allocate(gpu.driver(), bytes + 1))) {
    need(gpu.driver().check(
        gpu.driver().api().fill(array_->address(), 0xcd, bytes + 1, gpu.stream().get()),
        "fill memory"));
  }

  std::byte* address() override { return gpu::as_pointer<std::byte>(array_->address()); }
  void read(std::span<std::byte> to) override {
    need(gpu::copy_down(gpu_.driver(), to, array_->address(), gpu_.stream().get()));
    need(gpu_.stream().finish());
  }
  void write(std::span<const std::byte> from) {
    need(gpu::copy_up(gpu_.driver(), array_->address(), from, gpu_.stream().get()));
    need(gpu_.stream().finish());
  }

 private:
  const Gpu& gpu_;
  std::unique_ptr<gpu::DeviceArray> array_;
};

std::unique_ptr<DeviceMemory> Gpu::allocate(std::size_t count, std::size_t element_bytes,
                                            std::span<const std::byte> values) {
  auto memory = std::make_unique<GpuMemory>(*this, count * element_bytes);
  memory->write(values);
  return memory;
}

std::unique_ptr<Target> chosen_target() {
  if (gpu::tests_run_on_gpu()) return std::make_unique<Gpu>();
  return std::make_unique<Emulation>();
}

}  // namespace

Target& target() {
  static const std::unique_ptr<Target> kTarget = chosen_target();
  return *kTarget;
}

}  // namespace tern::codec::device
