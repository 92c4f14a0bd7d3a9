#include "cuda/residual.h"

namespace tern::cuda {

Result<std::unique_ptr<Residual>> Residual::create(const Device& device, const ChunkMap& map) {
  std::unique_ptr<Residual> made(new Residual(device, map));
  for (auto* const array : {&made->current_, &made->next_}) {
    auto allocated = gpu::DeviceArray::allocate(device.driver, made->bytes_);
    if (!allocated) return tl::unexpected(allocated.error());
    *array = std::move(*allocated);
  }
  return made;
}

Status Residual::begin(gpu::Stream stream) const {
  return driver_.check(
      driver_.api().copy_across(next_->address(), current_->address(), bytes_, stream),
      "copy a residual");
}

Status Residual::put(std::span<const float> floats, gpu::Stream stream) const {
  for (const ChunkPlace& chunk : map_.chunks()) {
    if (!chunk.contributed) continue;
    auto copied = gpu::copy_up(driver_, gpu::as_address(place(*current_, chunk)),
                               std::as_bytes(floats.subspan(chunk.begin, chunk.elements)), stream);
    if (!copied) return copied;
  }
  return {};
}

Status Residual::take(std::span<float> floats, gpu::Stream stream) const {
  for (const ChunkPlace& chunk : map_.chunks()) {
    if (!chunk.contributed) continue;
    auto copied =
        gpu::copy_down(driver_, std::as_writable_bytes(floats.subspan(chunk.begin, chunk.elements)),
                       gpu::as_address(place(*current_, chunk)), stream);
    if (!copied) return copied;
  }
  return {};
}

}  // namespace tern::cuda
