#include "collective/share_tables.h"

#include <algorithm>

#include "base/check.h"

namespace tern::collective {

const std::uint64_t* ShareTables::take(std::span<const std::uint64_t> counts) {
  TERN_CHECK(counts.size() == ranks_);
  if (free_.empty()) {
    tables_.push_back(std::make_unique<std::uint64_t[]>(ranks_ + 1));
    free_.reserve(tables_.size());
    free_.push_back(tables_.back().get());
  }
  std::uint64_t* const begins = free_.back();
  free_.pop_back();
  begins[0] = 0;
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    begins[rank + 1] = begins[rank] + counts[rank];
  }
  return begins;
}

void ShareTables::give(const std::uint64_t* begins) {
  if (begins == nullptr) return;
  const auto table = std::find_if(tables_.begin(), tables_.end(),
                                  [begins](const auto& one) { return one.get() == begins; });
  TERN_CHECK(table != tables_.end());
  free_.push_back(table->get());
}

bool ShareTables::are(const std::uint64_t* begins,
                      std::span<const std::uint64_t> counts) const noexcept {
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    if (begins[rank + 1] - begins[rank] != counts[rank]) return false;
  }
  return true;
}

}  // namespace tern::collective
