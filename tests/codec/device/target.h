#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "codec/device/emulation/launch.h"
#include "gpu/kernels.h"

// Where the kernels of these tests run: on the emulation, or on the first GPU of this machine if
// TERN_TEST_TARGET=gpu. What a launch did wrong is its finding; a GPU knows less of that, and
// nothing of schedules.
namespace tern::codec::device {

using emulation::LaunchOptions;
using emulation::LaunchReport;

// An array in the memory of the target. What was not given values counts as unwritten.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // As kernels call it.
  virtual std::byte* address() = 0;
  virtual void read(std::span<std::byte> to) = 0;
};

struct KernelCall {
  gpu::Kernel kernel;
  void** parameters;               // of its launch on a GPU
  std::function<void()> emulated;  // what every emulated thread runs
};

class Target {
 public:
  virtual ~Target() = default;
  // `values`: as many bytes, or none.
  virtual std::unique_ptr<DeviceMemory> allocate(std::size_t count, std::size_t element_bytes,
                                                 std::span<const std::byte> values) = 0;
  virtual LaunchReport launch(const KernelCall& call, std::uint32_t chunks,
                              const LaunchOptions& options) = 0;
  // Whether one schedule is as good as another.
  virtual bool schedules_itself() const noexcept = 0;
};

Target& target();

template <typename T>
class Array {
 public:
  explicit Array(std::size_t count)
      : count_(count), memory_(target().allocate(count, sizeof(T), {})) {}
  explicit Array(std::span<const T> values)
      : count_(values.size()),
        memory_(target().allocate(values.size(), sizeof(T), std::as_bytes(values))) {}

  T* data() const { return static_cast<T*>(static_cast<void*>(memory_->address())); }
  std::size_t size() const noexcept { return count_; }
  // As the host sees it now.
  std::vector<T> values() const {
    std::vector<T> values(count_);
    memory_->read(std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  std::size_t count_;
  std::unique_ptr<DeviceMemory> memory_;
};

// A kernel by both of its names: the entry point on a GPU, and what the emulation runs.
template <typename Stage, typename Chunk>
struct StagedKernel {
  gpu::Kernel on_gpu;
  void (*emulated)(const Stage& stage, const Chunk* chunks);

  LaunchReport launch(Stage stage, const Array<Chunk>& chunks, const LaunchOptions& options) const {
    const Chunk* array = chunks.data();
    void* parameters[] = {&stage, static_cast<void*>(&array)};
    return target().launch({on_gpu, parameters, [this, &stage, array] { emulated(stage, array); }},
                           static_cast<std::uint32_t>(chunks.size()), options);
  }
};

}  // namespace tern::codec::device
