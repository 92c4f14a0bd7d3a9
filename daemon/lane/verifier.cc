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

std::span<const wire::VerifyBody> Verifier::take(OpId op, const OpBlocks& blocks) {
  // What fits in its announcements has no results that are blocks, whatever a node says.
  if (blocks_[op].are_compared && !blocks.op(op).eager) return take_blocks(op);
  const auto& numbers = shape_.ranks[shape_.node];
  const auto& chunks = blocks.op(op).chunks;
  const auto ranks = blocks.ranks(op);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto output = host_bytes(ranks[i].output);
    std::uint32_t crc = 0;
    const auto count_in = [&](const ChunkPart& part) {
      const shm::BlockSlots* const slots = blocks.slots(op);
      const std::size_t offset = slots != nullptr ? slots->element_offset(part.begin)
                                                  : part.begin * dtype_bytes(blocks.dtype(op));
      crc = wire::crc32c(output.subspan(offset, blocks.bytes(op, part)), crc);
    };
    if (blocks.op(op).eager) {
      count_in(blocks.whole(op));
    } else {
      for (std::uint32_t node = 0; node < shape_.nodes(); ++node) {
        // Of what is sent on the root has all, which others own.
        if (chunks.is_sent_on() && node == blocks.op(op).root_node) continue;
        for (std::uint32_t index = 0; index < chunks.owned(node); ++index) {
          count_in(blocks.part(op, chunks.chunk(node, index)));
        }
      }
    }
    own_[i] = {numbers[i], crc};
    checksum(op, numbers[i]) = crc;
  }
  return own_;
}

std::span<const wire::VerifyBody> Verifier::take_blocks(OpId op) {
  const std::uint32_t crc = blocks_[op].crc;
  const auto& numbers = shape_.ranks[shape_.node];
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    own_[i] = {numbers[i], crc};
    checksum(op, numbers[i]) = crc;
  }
  return own_;
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
