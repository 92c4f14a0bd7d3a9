#include "gpu/memory.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tern::gpu {

std::size_t page_bytes() noexcept {
  static const auto kBytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return kBytes;
}

std::size_t whole_pages(std::size_t bytes) noexcept {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

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

Result<std::unique_ptr<DeviceArray>> DeviceArray::allocate(const Driver& driver,
                                                           std::size_t bytes) {
  std::unique_ptr<DeviceArray> array(new DeviceArray(driver));
  if (auto done =
          driver.check(driver.api().allocate(&array->address_, bytes), "allocate device memory");
      !done) {
    array->address_ = 0;
    return tl::unexpected(done.error());
  }
  return array;
}

Result<std::unique_ptr<DeviceArray>> DeviceArray::allocate(const Driver& driver, std::size_t bytes,
                                                           Stream stream) {
  auto array = allocate(driver, bytes);
  if (!array) return array;
  if (auto done = driver.check(driver.api().fill((*array)->address(), 0, bytes, stream),
                               "clear device memory");
      !done) {
    return tl::unexpected(done.error());
  }
  return array;
}

DeviceArray::~DeviceArray() {
  if (address_ != 0) driver_.api().release(address_);
}

Result<std::unique_ptr<PinnedPages>> PinnedPages::create(const Driver& driver, std::size_t bytes) {
  const std::size_t all = whole_pages(bytes);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(page_bytes(), all));
  if (memory == nullptr) {
    return fail(Errc::out_of_memory, "no memory for " + std::to_string(all) + " bytes of the host");
  }
  std::memset(memory, 0, all);
  std::unique_ptr<PinnedPages> pages(new PinnedPages({memory, all}));
  auto range = PinnedRange::pin(driver, pages->memory_);
  if (!range) return tl::unexpected(range.error());
  pages->range_ = std::move(*range);
  return pages;
}

PinnedPages::~PinnedPages() {
  range_.reset();
  std::free(memory_.data());
}

Status copy_down(const Driver& driver, std::span<std::byte> to, DeviceAddress from, Stream stream) {
  if (to.empty()) return {};
  return driver.check(driver.api().copy_down(to.data(), from, to.size(), stream),
                      "copy elements from the device");
}

Status copy_up(const Driver& driver, DeviceAddress to, std::span<const std::byte> from,
               Stream stream) {
  if (from.empty()) return {};
  return driver.check(driver.api().copy_up(to, from.data(), from.size(), stream),
                      "copy elements to the device");
}

}  // namespace tern::gpu
