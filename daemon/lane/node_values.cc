#include "daemon/lane/node_values.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "codec/accumulate.h"
#include "codec/codec.h"
#include "collective/eager_pieces.h"
#include "collective/op_plan.h"

namespace tern::daemon {

using collective::OpId;

namespace {

std::byte* at(const Operand& operand, std::uint64_t offset) noexcept {
  return host_bytes(operand).data() + offset;
}

}  // namespace

std::byte* NodeValues::input_at(OpId op, const OpRank& rank, std::uint64_t begin) const noexcept {
  const shm::BlockSlots* const slots = blocks_.slots(op);
  return at(rank.input, slots != nullptr ? slots->element_offset(begin)
                                         : begin * dtype_bytes(blocks_.dtype(op)));
}

// REQUIRES: the rank receives the part.
std::byte* NodeValues::output_at(OpId op, const OpRank& rank,
                                 const ChunkPart& part) const noexcept {
  if (const shm::BlockSlots* const slots = blocks_.slots(op)) {
    return at(rank.output, slots->element_offset(part.begin));
  }
  return host_bytes(rank.output_of(part.range(), dtype_bytes(blocks_.dtype(op)))).data();
}

// ---- Inputs -------------------------------------------------------------------------------------

bool NodeValues::is_plain(OpId op) const noexcept {
  const auto ranks = blocks_.ranks(op);
  return ranks.size() == 1 && ranks[0].prescale == 1.0f &&
         blocks_.op(op).plan->input_piece == nullptr;
}

const std::byte* NodeValues::plain(OpId op, const ChunkPart& part) const noexcept {
  return input_at(op, blocks_.ranks(op)[0], part.begin);
}

void NodeValues::sum(OpId op, const ChunkPart& part, std::byte* out) const {
  const DType type = blocks_.dtype(op);
  const std::size_t wide = codec::accumulator_bytes(type);
  const collective::Op& about = blocks_.op(op);
  const collective::GroupShape& group = blocks_.ops().shape();
  const auto ranks = blocks_.ranks(op);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const plan::Shape shape = collective::shape_for(about, group.ranks[blocks_.self()][i], group);
    plan::for_each_input_piece(
        *about.plan, shape, {part.begin, part.elements},
        [&](std::uint64_t first, plan::Range piece) {
          const std::byte* const source = input_at(op, ranks[i], piece.begin);
          std::byte* const sum = out + first * wide;
          if (i == 0) {
            codec::accumulate_begin({type, source, piece.count}, ranks[i].prescale, sum);
          } else {
            codec::accumulate(blocks_.reduction(op), {type, source, piece.count}, ranks[i].prescale,
                              sum);
          }
        });
  }
}

void NodeValues::write(OpId op, const ChunkPart& part, std::byte* out) const {
  std::byte* const wide = blocks_.scratch(0).data();
  sum(op, part, wide);
  const Reduction how = blocks_.reduction(op);
  const Reduction plain = how == Reduction::average ? Reduction::sum : how;
  codec::accumulate_finish(plain, wide, 1, {blocks_.dtype(op), out, part.elements});
}

std::span<const float> NodeValues::floats(OpId op, const ChunkPart& part) const {
  if (blocks_.dtype(op) == DType::f32 && is_plain(op)) {
    return {as_floats(plain(op, part)), part.elements};
  }
  std::byte* const wide = blocks_.scratch(0).data();
  sum(op, part, wide);
  return {as_floats(wide), part.elements};
}

const std::byte* NodeValues::moved_input(OpId op, const ChunkPart& part) const noexcept {
  const OpRank* const sender = sender_of(blocks_.ranks(op), part.range());
  TERN_CHECK(sender != nullptr);
  return host_bytes(sender->input_of(part.range(), dtype_bytes(blocks_.dtype(op)))).data();
}

std::span<const float> NodeValues::moved_floats(OpId op, const ChunkPart& part) const {
  const DType type = blocks_.dtype(op);
  const std::byte* const input = moved_input(op, part);
  if (type == DType::f32) return {as_floats(input), part.elements};
  std::byte* const wide = blocks_.scratch(0).data();
  codec::accumulate_begin({type, input, part.elements}, 1.0f, wide);
  return {as_floats(wide), part.elements};
}

std::span<const std::byte> NodeValues::block(OpId op, const ChunkPart& part) const noexcept {
  const shm::BlockSlots& slots = *blocks_.slots(op);
  return {at(blocks_.ranks(op)[0].input, slots.block_offset(part.begin)), slots.slot_bytes()};
}

std::span<const std::byte> NodeValues::eager_values(OpId op, std::uint32_t node,
                                                    std::span<const std::byte> contribution) const {
  const collective::Op& about = blocks_.op(op);
  const std::size_t element = dtype_bytes(blocks_.dtype(op));
  const std::span<std::byte> room = blocks_.scratch(0);
  std::span<const std::byte> first;
  std::size_t used = 0;
  const auto add = [&](const collective::EagerPiece& piece) {
    const std::size_t bytes = piece.sent.count * element;
    const ChunkPart part{piece.sent.begin, static_cast<std::uint32_t>(piece.sent.count)};
    const std::span<const std::byte> values =
        about.plan->reduces() ? contribution.subspan(part.begin * element, bytes)
                              : std::span<const std::byte>{moved_input(op, part), bytes};
    if (used == 0) {
      first = values;
    } else {
      if (used == first.size()) std::copy(first.begin(), first.end(), room.begin());
      std::copy(values.begin(), values.end(), room.begin() + static_cast<std::ptrdiff_t>(used));
    }
    used += bytes;
  };
  collective::for_each_eager_piece(about, {blocks_.self(), node}, blocks_.ops().shape(), add);
  return used == first.size() ? first : std::span<const std::byte>(room.first(used));
}

// ---- Outputs ------------------------------------------------------------------------------------

std::byte* NodeValues::output(OpId op, const ChunkPart& part) const noexcept {
  const OpRank* const receiver = receiver_of(blocks_.ranks(op), part.range());
  TERN_CHECK(receiver != nullptr);
  return output_at(op, *receiver, part);
}

void NodeValues::deliver(OpId op, const ChunkPart& part, const std::byte* elements) const {
  for (const OpRank& rank : blocks_.ranks(op)) {
    if (!rank.receives(part.range())) continue;
    std::byte* const out = output_at(op, rank, part);
    if (out != elements) std::memmove(out, elements, blocks_.bytes(op, part));
    if (blocks_.slots(op) != nullptr) {
      wire::write_block_header(
          codec::raw_block_header(blocks_.dtype(op), part.elements, false, blocks_.sequence(op)),
          std::span<std::byte, wire::kBlockHeaderBytes>(out - wire::kBlockHeaderBytes,
                                                        wire::kBlockHeaderBytes));
    }
  }
}

bool NodeValues::deliver_block(OpId op, const ChunkPart& part,
                               std::span<const std::byte> block) const {
  if (block.size() > blocks_.slots(op)->slot_bytes()) return false;
  std::byte* const out = output_at(op, blocks_.ranks(op)[0], part) - wire::kBlockHeaderBytes;
  std::copy(block.begin(), block.end(), out);
  return true;
}

void NodeValues::deliver_floats(OpId op, const ChunkPart& part, const float* values) const {
  codec::from_f32(blocks_.dtype(op), values, part.elements, output(op, part));
  copy_to_other_ranks(op, part);
}

void NodeValues::copy_to_other_ranks(OpId op, const ChunkPart& part) const {
  deliver(op, part, output(op, part));
}

}  // namespace tern::daemon
