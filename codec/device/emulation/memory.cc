#include "codec/device/emulation/memory.h"

#include <cstdint>
#include <map>

namespace tern::codec::device::emulation {
namespace {

std::map<std::uintptr_t, Allocation*>& allocations() {
  static std::map<std::uintptr_t, Allocation*> all;
  return all;
}

std::uintptr_t number(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace

Allocation::Allocation(std::byte* at, std::size_t byte_count, std::size_t element_bytes,
                       bool written)
    : begin(at),
      bytes(byte_count),
      granule(element_bytes),
      watch((byte_count + element_bytes - 1) / element_bytes, written) {
  allocations().emplace(number(at), this);
}

Allocation::~Allocation() { allocations().erase(number(begin)); }

// One past the end belongs to the array before, so that its report says so.
Allocation* Allocation::find(const void* address) noexcept {
  const auto above = allocations().upper_bound(number(address));
  if (above == allocations().begin()) return nullptr;
  Allocation* const found = std::prev(above)->second;
  return number(address) <= number(found->begin) + found->bytes + 4096 ? found : nullptr;
}

}  // namespace tern::codec::device::emulation
