#include "gpu/memory.h"

namespace tern::gpu {

Result<std::unique_ptr<PinnedRange>> PinnedRange::pin(const Driver& driver,
                                                      std::span<std::byte> memory) {
  const DriverApi& api = driver.api();
  if (auto done =
          driver.check(api.pin(memory.data(), memory.size(), kRegisterPortable | kRegisterMapped),
                       "pin the arena; copies through it are slower without");
      !done) {
    return tl::unexpected(done.error());
  }
  // From here on the destructor unpins.
  std::unique_ptr<PinnedRange> range(new PinnedRange(driver, memory));
  if (auto done =
          driver.check(api.pinned_address(&range->address_, memory.data(), 0), "map the arena");
      !done) {
    return tl::unexpected(done.error());
  }
  return range;
}

PinnedRange::~PinnedRange() { driver_.api().unpin(memory_.data()); }

Result<std::unique_ptr<DeviceArray>> DeviceArray::allocate(const Driver& driver, std::size_t bytes,
                                                           Stream stream) {
  std::unique_ptr<DeviceArray> array(new DeviceArray(driver));
  const DriverApi& api = driver.api();
  if (auto done = driver.check(api.allocate(&array->address_, bytes), "allocate a residual");
      !done) {
    array->address_ = 0;
    return tl::unexpected(done.error());
  }
  if (auto done = driver.check(api.fill(array->address_, 0, bytes, stream), "clear a residual");
      !done) {
    return tl::unexpected(done.error());
  }
  return array;
}

DeviceArray::~DeviceArray() {
  if (address_ != 0) driver_.api().release(address_);
}

}  // namespace tern::gpu
