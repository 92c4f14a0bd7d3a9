#include "daemon/lane/verifier.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "wire/crc32c.h"

namespace tern::daemon {

using collective::OpId;

Verifier::Verifier(const collective::GroupShape& shape, std::uint32_t group_size,
                   std::uint32_t op_slots)
    : shape_(shape), size_(group_size) {
  if (!shape.verify) return;
  checksums_.resize(std::size_t{op_slots} * size_);
  blocks_.resize(op_slots);
  own_.resize(shape.local_ranks());
  under_way_.reserve(op_slots);
}

std::size_t Verifier::payload_bytes(std::uint32_t node) const noexcept {
  return shape_.verify ? shape_.ranks[node].size() * sizeof(wire::VerifyBody) : 0;
}

void Verifier::compare_blocks(OpId op) noexcept {
  if (shape_.verify) blocks_[op].are_compared = true;
}

void Verifier::add_block(OpId op, std::uint32_t number, std::span<const std::byte> payload,
                         bool may_be_compared) noexcept {
  if (!shape_.verify) return;
  Blocks& blocks = blocks_[op];
  if (blocks.are_compared || may_be_compared) blocks.crc ^= wire::crc32c(payload, number);
}

std::uint32_t Verifier::blocks_crc(OpId op) const noexcept {
  return shape_.verify ? blocks_[op].crc : 0;
}

void Verifier::forget(OpId op) noexcept {
  if (shape_.verify) blocks_[op] = {};
}

Verifier::Taken Verifier::take_some(const OpBlocks& blocks, std::size_t bytes) {
  const collective::Action action = under_way_.front();
  const OpId op = action.op;
  const auto& numbers = shape_.ranks[shape_.node];
  const bool failed = blocks.op(op).failed();
  std::size_t seen = 0;
  while (!failed && place_.rank < numbers.size()) {
    if (seen >= bytes) return {};
    // What fits in its announcements has no results that are blocks, whatever a node says.
    const bool as_blocks = blocks_[op].are_compared && !blocks.op(op).is_eager();
    if (as_blocks) place_.crc = blocks_[op].crc;
    if (!as_blocks && take_chunk(blocks, op, seen)) continue;
    own_[place_.rank] = {numbers[place_.rank], place_.crc};
    checksum(op, numbers[place_.rank]) = place_.crc;
    place_ = {.rank = place_.rank + 1};
  }
  place_ = {};
  under_way_.erase(under_way_.begin());
  return {action, failed ? std::span<const wire::VerifyBody>() : own_};
}

bool Verifier::take_chunk(const OpBlocks& blocks, OpId op, std::size_t& seen) {
  if (blocks.op(op).is_eager()) {
    if (place_.index++ != 0) return false;
    seen += count_in(blocks, op, blocks.whole(op));
    return true;
  }
  const auto& chunks = blocks.op(op).chunks;
  for (; place_.node < shape_.nodes(); ++place_.node, place_.index = 0) {
    // Of what is sent on the root has all, which others own.
    if (chunks.is_sent_on() && place_.node == blocks.op(op).root_node) continue;
    if (place_.index == chunks.owned(place_.node)) continue;
    seen += count_in(blocks, op, blocks.part(op, chunks.chunk(place_.node, place_.index++)));
    return true;
  }
  return false;
}

std::size_t Verifier::count_in(const OpBlocks& blocks, OpId op, const ChunkPart& part) {
  const shm::BlockSlots* const slots = blocks.slots(op);
  const std::size_t offset = slots != nullptr ? slots->element_offset(part.begin)
                                              : part.begin * dtype_bytes(blocks.dtype(op));
  const auto output = host_bytes(blocks.ranks(op)[place_.rank].output);
  const std::size_t bytes = blocks.bytes(op, part);
  place_.crc = wire::crc32c(output.subspan(offset, bytes), place_.crc);
  return bytes;
}

bool Verifier::accept(OpId op, std::uint32_t node, std::span<const std::byte> payload) {
  const auto& ranks = shape_.ranks[node];
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    wire::VerifyBody body;
    std::memcpy(&body, payload.data() + i * sizeof(body), sizeof(body));
    if (body.rank != ranks[i]) return false;
    checksum(op, body.rank) = body.crc;
  }
  return true;
}

Verifier::Verdict Verifier::compare(OpId op) const {
  const std::uint32_t* const sums = &checksums_[std::size_t{op} * size_];
  // What most ranks have is taken for right; of equal camps the one with the lowest rank.
  std::uint32_t right = sums[0];
  std::size_t most = 0;
  for (std::uint32_t i = 0; i < size_; ++i) {
    const auto same = static_cast<std::size_t>(std::count(sums, sums + size_, sums[i]));
    if (same > most) {
      most = same;
      right = sums[i];
    }
  }
  Verdict verdict;
  if (most == size_) return verdict;
  verdict.code = Errc::result_mismatch;
  int used = std::snprintf(verdict.text, sizeof(verdict.text),
                           "the result differs from the other ranks' on rank");
  for (std::uint32_t i = 0; i < size_ && used < 100; ++i) {
    if (sums[i] == right) continue;
    used += std::snprintf(verdict.text + used,
                          sizeof(verdict.text) - static_cast<std::size_t>(used), " %u", i);
  }
  return verdict;
}

}  // namespace tern::daemon
