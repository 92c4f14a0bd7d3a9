#include "codec/device/emulation/shared_memory.h"

#include <cstring>

namespace tern::codec::device::emulation {

SharedArray::SharedArray(const SharedShape& of, std::size_t at)
    : shape(of),
      offset(at),
      memory(of.elements * of.element_bytes / sizeof(std::max_align_t) + 1),
      watch(of.elements, false) {
  std::memset(data(), 0xcd, of.elements * of.element_bytes);
}

SharedArray* SharedMemory::array(std::size_t number, const SharedShape& shape) {
  if (number == arrays_.size()) {
    arrays_.push_back(std::make_unique<SharedArray>(shape, bytes_));
    const std::size_t bytes = shape.elements * shape.element_bytes;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (number >= arrays_.size() || arrays_[number]->shape != shape) return nullptr;
  return arrays_[number].get();
}

void SharedMemory::clear() noexcept {
  arrays_.clear();
  bytes_ = 0;
}

}  // namespace tern::codec::device::emulation
