#include "client_lib/delivery.h"

#include <algorithm>

#include "shm/streamed_copy.h"

namespace tern::client_lib {

void Delivery::begin(const shm::CopyProgress& progress, const Memory& memory) {
  progress_ = progress;
  memory_ = memory;
  copied_.reserve(progress.shape().records);
}

bool Delivery::has_more() const noexcept {
  if (!progress_.exists() || copied_.size() == copied_.capacity()) return false;
  for (std::uint32_t lane = 0; lane < progress_.shape().lanes; ++lane) {
    const std::uint64_t listed = progress_.delivered_records(lane);
    if (listed > taken_[lane] && taken_[lane] < progress_.shape().records) return true;
  }
  return false;
}

void Delivery::copy_listed() noexcept {
  if (!progress_.exists()) return;
  for (std::uint32_t lane = 0; lane < progress_.shape().lanes; ++lane) {
    const std::uint64_t listed =
        std::min<std::uint64_t>(progress_.delivered_records(lane), progress_.shape().records);
    while (taken_[lane] < listed && copied_.size() < copied_.capacity()) {
      const shm::DeliveredRecord piece = progress_.record(lane, taken_[lane]++);
      if (piece.offset > memory_.bytes || piece.bytes > memory_.bytes - piece.offset) continue;
      copy(piece);
      shm::DeliveredRecord* const last = copied_.empty() ? nullptr : &copied_.back();
      if (last != nullptr && last->offset + last->bytes == piece.offset) {
        last->bytes += piece.bytes;
      } else {
        copied_.push_back(piece);
      }
    }
  }
}

void Delivery::copy_rest(std::uint64_t bytes) noexcept {
  std::sort(copied_.begin(), copied_.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;  // of what has been copied without a gap
  for (const shm::DeliveredRecord& piece : copied_) {
    if (piece.offset > end) copy({end, std::min(piece.offset, bytes) - end});
    end = std::max(end, piece.offset + piece.bytes);
    if (end >= bytes) break;
  }
  if (end < bytes) copy({end, bytes - end});
  copied_.clear();
}

void Delivery::copy(const shm::DeliveredRecord& piece) noexcept {
  if (piece.bytes == 0) return;
  shm::copy_part(static_cast<std::byte*>(memory_.to) + piece.offset, memory_.from + piece.offset,
                 piece.bytes, memory_.bytes);
}

}  // namespace tern::client_lib
