#include "collective/pair_counts.h"

#include <algorithm>

#include "base/check.h"
#include "wire/crc32c.h"

namespace tern::collective {
namespace {

std::uint32_t crc_of(std::uint64_t count, std::uint32_t crc) noexcept {
  return wire::crc32c(std::as_bytes(std::span(&count, 1)), crc);
}

}  // namespace

PairCounts::PairCounts(const GroupShape& group)
    : group_(&group),
      ranks_(group.group_size()),
      begins_(std::size_t{group.local_ranks()} * 2 * (ranks_ + 1)) {}

void PairCounts::clear() { std::fill(begins_.begin(), begins_.end(), 0); }

void PairCounts::say(std::uint32_t local_rank, std::span<const std::uint64_t> counts) {
  TERN_CHECK(counts.size() == std::size_t{2} * ranks_);
  for (const bool received : {false, true}) {
    std::uint64_t* const begins = row(local_rank, received);
    const auto one_way = counts.subspan(received ? ranks_ : 0, ranks_);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      begins[rank + 1] = begins[rank] + one_way[rank];
    }
  }
}

std::uint64_t PairCounts::sent(std::uint32_t local_rank, std::uint32_t to) const noexcept {
  const std::uint64_t* const begins = row(local_rank, false);
  return begins[to + 1] - begins[to];
}

std::uint64_t PairCounts::received(std::uint32_t local_rank, std::uint32_t from) const noexcept {
  const std::uint64_t* const begins = row(local_rank, true);
  return begins[from + 1] - begins[from];
}

std::uint64_t PairCounts::sent_begin(std::uint32_t local_rank, std::uint32_t to) const noexcept {
  return row(local_rank, false)[to];
}

std::uint64_t PairCounts::received_begin(std::uint32_t local_rank,
                                         std::uint32_t from) const noexcept {
  return row(local_rank, true)[from];
}

// Both go through the pairs in the same order: rank by rank of who sends, then of who receives.
std::uint32_t PairCounts::sent_crc(std::uint32_t node) const noexcept {
  std::uint32_t crc = 0;
  for (std::uint32_t local = 0; local < group_->local_ranks(); ++local) {
    for (const std::uint32_t to : group_->ranks[node]) crc = crc_of(sent(local, to), crc);
  }
  return std::max(crc, std::uint32_t{1});
}

std::uint32_t PairCounts::received_crc(std::uint32_t node) const noexcept {
  std::uint32_t crc = 0;
  for (const std::uint32_t from : group_->ranks[node]) {
    for (std::uint32_t local = 0; local < group_->local_ranks(); ++local) {
      crc = crc_of(received(local, from), crc);
    }
  }
  return std::max(crc, std::uint32_t{1});
}

PairCounts* PairTables::take() {
  if (free_.empty()) {
    tables_.push_back(std::make_unique<PairCounts>(*group_));
    free_.reserve(tables_.size());
    free_.push_back(tables_.back().get());
  }
  PairCounts* const counts = free_.back();
  free_.pop_back();
  counts->clear();
  return counts;
}

void PairTables::give(PairCounts* counts) {
  if (counts != nullptr) free_.push_back(counts);
}

}  // namespace tern::collective
