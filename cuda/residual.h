#pragma once

#include <memory>
#include <utility>

#include "cuda/chunk_map.h"
#include "cuda/parameters.h"

// What error feedback owes for the chunks that other nodes own, in the device's memory.
//
// It is there twice. An operation works on a copy, which takes the original's place when the
// operation has succeeded. So an operation that fails, at whatever moment, takes nothing with it,
// and nothing has to be undone by a device that may not answer any more. It costs 4 bytes an
// element, and reading and writing them once more.
namespace tern::cuda {

class Residual {
 public:
  // It makes no sense before put(). Requires: `device` and `map` outlive it.
  static Result<std::unique_ptr<Residual>> create(const Device& device, const ChunkMap& map);

  // The copy is made on the stream, where the kernels then change it.
  Status begin(gpu::Stream stream) const;
  float* next(const ChunkPlace& chunk) const noexcept { return place(*next_, chunk); }
  gpu::DeviceAddress next_on_device(const ChunkPlace& chunk) const noexcept {
    return gpu::as_address(next(chunk));
  }
  gpu::DeviceAddress now_on_device(const ChunkPlace& chunk) const noexcept {
    return gpu::as_address(place(*current_, chunk));
  }
  // The operation has succeeded.
  void commit() noexcept { std::swap(current_, next_); }

  // From or to all floats of a part of the tensor's state, in element order. Requires: the memory
  // stays until the stream has got there.
  Status put(std::span<const float> floats, gpu::Stream stream) const;
  Status take(std::span<float> floats, gpu::Stream stream) const;

  HeldBytes held() const noexcept { return {2 * bytes_, 0}; }

 private:
  Residual(const Device& device, const ChunkMap& map)
      : driver_(device.driver), map_(map), bytes_(map.contributed_elements() * sizeof(float)) {}

  static float* place(const gpu::DeviceArray& array, const ChunkPlace& chunk) noexcept {
    return gpu::as_pointer<float>(array.address()) + chunk.residual;
  }

  const gpu::Driver& driver_;
  const ChunkMap& map_;
  std::size_t bytes_;
  std::unique_ptr<gpu::DeviceArray> current_;
  std::unique_ptr<gpu::DeviceArray> next_;
};

}  // namespace tern::cuda
