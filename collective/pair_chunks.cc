#include "collective/pair_chunks.h"

#include <algorithm>

#include "plan/pairs.h"

namespace tern::collective {

PairChunks::PairChunks(const shm::Sharding& sharding, const GroupShape& group,
                       const PairCounts* counts) noexcept
    : sharding_(sharding),
      group_(&group),
      counts_(counts),
      ranks_(static_cast<std::uint16_t>(group.group_size())) {
  const std::uint32_t first = (group.lane + sharding.lanes - sharding.lane(0)) % sharding.lanes;
  first_round_ = static_cast<std::uint8_t>(first);
  for (const std::uint32_t from : group.ranks[group.node]) {
    for (std::uint32_t to = 0; to < ranks_; ++to) {
      const std::uint32_t chunks = chunks_in(elements(from, to));
      owned_ += chunks;
      turns_ = std::max(turns_, chunks);
    }
  }
}

std::uint32_t PairChunks::local(std::uint32_t rank) const noexcept {
  const auto& here = group_->ranks[group_->node];
  const auto found = std::lower_bound(here.begin(), here.end(), rank);
  return found != here.end() && *found == rank ? static_cast<std::uint32_t>(found - here.begin())
                                               : kNoSlot;
}

std::uint64_t PairChunks::elements(std::uint32_t from, std::uint32_t to) const noexcept {
  if (counts_ == nullptr) return sharding_.count / ranks_;
  const std::uint32_t sender = local(from);
  return sender != kNoSlot ? counts_->sent(sender, to) : counts_->received(local(to), from);
}

std::uint32_t PairChunks::chunks_in(std::uint64_t elements) const noexcept {
  const std::uint64_t rounds = (elements + sharding_.chunk_elements - 1) / sharding_.chunk_elements;
  if (rounds <= first_round_) return 0;
  return static_cast<std::uint32_t>((rounds - first_round_ - 1) / sharding_.lanes + 1);
}

std::uint32_t PairChunks::received_from(std::uint32_t node) const noexcept {
  std::uint32_t sum = 0;
  for (const std::uint32_t from : group_->ranks[node]) {
    for (const std::uint32_t to : group_->ranks[group_->node]) {
      sum += chunks_in(elements(from, to));
    }
  }
  return sum;
}

// Pairs may have different numbers of chunks.
std::uint32_t PairChunks::before_turn(std::uint32_t turn) const noexcept {
  if (counts_ == nullptr || turn == 0) return turn * pairs_here();
  std::uint32_t sum = 0;
  for (const std::uint32_t from : group_->ranks[group_->node]) {
    for (std::uint32_t to = 0; to < ranks_; ++to) {
      sum += std::min(turn, chunks_in(elements(from, to)));
    }
  }
  return sum;
}

// The turn in which the index-th chunk is.
std::uint32_t PairChunks::turn_of(std::uint32_t index) const noexcept {
  if (counts_ == nullptr) return index / pairs_here();
  std::uint32_t first = 0, end = turns_;
  while (end - first > 1) {
    const std::uint32_t middle = first + (end - first) / 2;
    (before_turn(middle) <= index ? first : end) = middle;
  }
  return first;
}

bool PairChunks::has_chunk(const Place& place) const noexcept {
  return chunks_in(elements(sender_at(place), receiver_at(place))) > place.turn;
}

std::uint32_t PairChunks::number_at(const Place& place) const noexcept {
  const std::uint64_t round = first_round_ + std::uint64_t{place.turn} * sharding_.lanes;
  return static_cast<std::uint32_t>((round * ranks_ + sender_at(place)) * ranks_ +
                                    receiver_at(place));
}

void PairChunks::go_on(Place& place) const noexcept {
  if (++place.from < group_->local_ranks()) return;
  place.from = 0;
  if (++place.to < receivers_at(place).size()) return;
  place.to = 0;
  if (++place.step < group_->nodes()) return;
  place.step = 0;
  ++place.turn;
}

void PairChunks::go_back(Place& place) const noexcept {
  if (place.from-- > 0) return;
  place.from = static_cast<std::uint8_t>(group_->local_ranks() - 1);
  if (place.to-- > 0) return;
  if (place.step-- == 0) {
    place.step = static_cast<std::uint8_t>(group_->nodes() - 1);
    --place.turn;
  }
  place.to = static_cast<std::uint8_t>(receivers_at(place).size() - 1);
}

std::uint32_t PairChunks::chunk(std::uint32_t, std::uint32_t index) const noexcept {
  Place place = last_;
  const std::uint32_t distance = std::max(index, place.index) - std::min(index, place.index);
  // Where few pairs have chunks left, each step is a walk through a turn.
  constexpr std::uint32_t kNear = 16;
  if (distance > kNear) {
    place = {.turn = turn_of(index)};
    place.index = before_turn(place.turn);
  }
  while (place.index > index) {
    go_back(place);
    if (has_chunk(place)) --place.index;
  }
  for (; place.turn < turns_; go_on(place)) {
    if (!has_chunk(place)) continue;
    if (place.index == index) {
      last_ = place;
      return number_at(place);
    }
    ++place.index;
  }
  return kNoSlot;
}

bool PairChunks::has(std::uint32_t node, std::uint32_t chunk) const noexcept {
  const auto& senders = group_->ranks[node];
  if (!std::binary_search(senders.begin(), senders.end(), sender(chunk))) return false;
  if (local(receiver(chunk)) == kNoSlot) return false;
  const std::uint64_t round = chunk / sharding_.columns;
  const bool here = round >= first_round_ && (round - first_round_) % sharding_.lanes == 0;
  return here && before(chunk) < elements(sender(chunk), receiver(chunk));
}

std::uint64_t PairChunks::begin(std::uint32_t chunk) const noexcept {
  const std::uint32_t from = sender(chunk), to = receiver(chunk);
  const std::uint64_t block =
      counts_ != nullptr ? counts_->sent_begin(local(from), to) : to * (sharding_.count / ranks_);
  return plan::pair_inputs_begin(from) + block + before(chunk);
}

std::uint64_t PairChunks::result_begin(std::uint32_t chunk) const noexcept {
  const std::uint32_t from = sender(chunk), to = receiver(chunk);
  const std::uint64_t block = counts_ != nullptr ? counts_->received_begin(local(to), from)
                                                 : from * (sharding_.count / ranks_);
  return plan::pair_outputs_begin(to) + block + before(chunk);
}

std::uint32_t PairChunks::size(std::uint32_t chunk) const noexcept {
  const std::uint64_t block = elements(sender(chunk), receiver(chunk));
  return static_cast<std::uint32_t>(
      std::min(sharding_.chunk_elements_of(block), block - before(chunk)));
}

}  // namespace tern::collective
