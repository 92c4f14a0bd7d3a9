#include "cuda/tensor_slots.h"

#include <utility>

#include "cuda/last_error.h"

namespace tern::cuda {

Result<std::unique_ptr<TensorSlots>> TensorSlots::create(const gpu::Driver& driver,
                                                         tern_client* client, std::size_t bytes,
                                                         bool& pin_failed) {
  std::unique_ptr<TensorSlots> made(new TensorSlots(client));
  // Whole pages of its own: a page that another tensor's slots are on could not be pinned again.
  const std::size_t page = gpu::page_bytes();
  const std::size_t whole = gpu::whole_pages(bytes);
  if (const tern_status status = tern_alloc(client, whole + page, &made->allocation_);
      status != TERN_OK) {
    made->allocation_ = nullptr;
    return tl::unexpected(error_of(status));
  }
  const auto begin = gpu::as_address(made->allocation_);
  made->slots_ = {static_cast<std::byte*>(made->allocation_) + (page - begin % page) % page, whole};
  auto range = gpu::PinnedRange::pin(driver, made->slots_);
  pin_failed = !range;
  if (!range) return tl::unexpected(range.error());
  made->range_ = std::move(*range);
  return made;
}

TensorSlots::~TensorSlots() {
  range_.reset();
  // After the loss of the daemon there is nothing to be given back.
  static_cast<void>(tern_free(client_, allocation_));
}

}  // namespace tern::cuda
