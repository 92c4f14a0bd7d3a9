// The data of an op: sums, blocks, outputs. Everything here runs to its end on one chunk.

#include <algorithm>
#include <cstring>

#include "codec/accumulate.h"
#include "collective/op_plan.h"
#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"

namespace tern::daemon {

using collective::ChunkId;
using collective::OpId;

namespace {

// Arena memory and slabs are at least element-aligned (checked at submission).
float* as_floats(std::byte* bytes) noexcept {
  return static_cast<float*>(static_cast<void*>(bytes));
}
const float* as_floats(const std::byte* bytes) noexcept {
  return static_cast<const float*>(static_cast<const void*>(bytes));
}

}  // namespace

LaneGroup::Part LaneGroup::part(OpId op, std::uint32_t chunk) const {
  const auto& sharding = ops_.op(op).chunks.sharding();
  return {sharding.chunk_begin(chunk), static_cast<std::uint32_t>(sharding.chunk_size(chunk))};
}

// One local rank whose bytes are the node's contribution as they are.
bool LaneGroup::single_plain_input(OpId op) const {
  return local_ranks_ == 1 && rank_of(op, 0).prescale == 1.0f &&
         ops_.op(op).plan->input_piece == nullptr;
}

void LaneGroup::sum_local(OpId op, const Part& part, std::byte* accumulator) const {
  const DType type = dtype(op);
  const auto& ranks = setup_.shape.ranks[self_];
  for (std::uint32_t i = 0; i < local_ranks_; ++i) {
    const OpRank& rank = rank_of(op, i);
    const auto add = [&](std::uint64_t first, plan::Range piece) {
      const std::byte* const source = rank.input + piece.begin * dtype_bytes(type);
      std::byte* const sum = accumulator + first * codec::accumulator_bytes(type);
      if (i == 0) {
        codec::accumulate_begin(type, source, piece.count, rank.prescale, sum);
      } else {
        codec::accumulate(type, reduction(op), source, piece.count, rank.prescale, sum);
      }
    };
    plan::for_each_input_piece(*ops_.op(op).plan,
                               collective::shape_for(ops_.op(op), ranks[i], setup_.shape),
                               {part.begin, part.elements}, add);
  }
}

// The node's contribution in the tensor's type: one rounding after the sum over local ranks.
void LaneGroup::write_own_contribution(OpId op, const Part& part, std::byte* out) {
  std::byte* sum = lane_->scratch(0).data();
  sum_local(op, part, sum);
  const Reduction plain = reduction(op) == Reduction::average ? Reduction::sum : reduction(op);
  codec::accumulate_finish(dtype(op), plain, sum, part.elements, 1, out);
}

std::span<const float> LaneGroup::local_f32(OpId op, const Part& part) {
  if (dtype(op) == DType::f32 && single_plain_input(op)) {
    return {as_floats(rank_of(op, 0).input) + part.begin, part.elements};
  }
  std::byte* sum = lane_->scratch(0).data();
  sum_local(op, part, sum);
  return {as_floats(sum), part.elements};
}

void LaneGroup::add_elements(OpId op, const Part& part, const std::byte* elements,
                             const std::byte* own, std::byte* accumulator) const {
  if (own != nullptr) {
    codec::accumulate_first(dtype(op), reduction(op), own, elements, part.elements, accumulator);
  } else {
    codec::accumulate(dtype(op), reduction(op), elements, part.elements, 1.0f, accumulator);
  }
}

// Null, or why the block cannot be added. With `own` the accumulator begins with that; else it has
// a sum already.
const char* LaneGroup::add_block(OpId op, std::uint32_t number, std::uint32_t sender,
                                 std::span<const std::byte> block, const std::byte* own,
                                 std::byte* accumulator, std::uint64_t& decode_ns) {
  const Part part = this->part(op, number);
  wire::BlockHeader header;
  if (const auto error = wire::parse_block_header(block, header); error != wire::BlockError::none) {
    return wire::block_error_text(error);
  }
  const auto payload = block.subspan(wire::kBlockHeaderBytes);
  if (header.elements != part.elements || header.payload_bytes != payload.size()) {
    return "the block's sizes differ from the chunk's";
  }
  const std::uint64_t begin = lane_->clock().now_ns();
  if (header.codec == static_cast<std::uint8_t>(wire::CodecId::raw)) {
    if (header.dtype != static_cast<std::uint8_t>(dtype(op)) ||
        payload.size() != part.elements * dtype_bytes(dtype(op))) {
      return "a raw block of another dtype";
    }
    add_elements(op, part, payload.data(), own, accumulator);
  } else if (header.codec == static_cast<std::uint8_t>(wire::CodecId::lossless)) {
    if (header.dtype != static_cast<std::uint8_t>(dtype(op))) return "a block of another dtype";
    const auto elements = lane_->scratch(1).first(part.elements * dtype_bytes(dtype(op)));
    const auto status =
        codec::decode_lossless(header, payload, {}, elements, lane_->codec_workspace());
    if (status != codec::DecodeStatus::ok) return codec::decode_status_name(status).data();
    add_elements(op, part, elements.data(), own, accumulator);
  } else {
    const bool sums = reduction(op) == Reduction::sum || reduction(op) == Reduction::average;
    const bool in_f32 =
        codec::accumulator_bytes(dtype(op)) == sizeof(float) && dtype_is_float(dtype(op));
    if (!sums || !in_f32) return "a lossy block for an operation that must be exact";
    const TensorState* const tensor = data_[op].tensor;
    if (!role_may_be_lossy(static_cast<Role>(ops_.op(op).announced_first.role)) ||
        tensor == nullptr || tensor->exempt) {
      return "a lossy block for an operation that must be exact";
    }
    if (own != nullptr) codec::accumulate_begin(dtype(op), own, part.elements, 1.0f, accumulator);
    if (codec::needs_shift(data_[op].recipe)) {
      float* const values = as_floats(lane_->scratch(1).data());
      if (const char* problem =
              decode_block(op, number, sender, header, payload, {values, part.elements})) {
        return problem;
      }
      codec::accumulate(DType::f32, Reduction::sum, lane_->scratch(1).data(), part.elements, 1.0f,
                        accumulator);
    } else {
      const auto status = codec::decode_add(
          header, payload, {as_floats(accumulator), part.elements}, lane_->codec_workspace());
      if (status != codec::DecodeStatus::ok) return codec::decode_status_name(status).data();
    }
  }
  decode_ns = lane_->clock().now_ns() - begin;
  data_[op].decode_ns += decode_ns;
  if (lane_->trace().on()) {
    trace_codec(TraceKind::decode, op, number, sender, header,
                {begin, begin + decode_ns, block.size()});
  }
  return nullptr;
}

// Decodes a result into the outputs of all local ranks.
const char* LaneGroup::deliver_block(OpId op, std::uint32_t number, std::uint32_t sender,
                                     std::span<const std::byte> block) {
  const Part part = this->part(op, number);
  wire::BlockHeader header;
  if (const auto error = wire::parse_block_header(block, header); error != wire::BlockError::none) {
    return wire::block_error_text(error);
  }
  const auto payload = block.subspan(wire::kBlockHeaderBytes);
  if (header.elements != part.elements || header.payload_bytes != payload.size()) {
    return "the block's sizes differ from the chunk's";
  }
  if (sender != self_) note_result(op, header);
  const DType type = dtype(op);
  const std::uint64_t begin = lane_->clock().now_ns();
  std::byte* output = rank_of(op, 0).output + part.begin * dtype_bytes(type);
  if (header.codec == static_cast<std::uint8_t>(wire::CodecId::raw)) {
    if (header.dtype != static_cast<std::uint8_t>(type) ||
        payload.size() != part.elements * dtype_bytes(type)) {
      return "a raw block of another dtype";
    }
    if (output != payload.data()) std::memmove(output, payload.data(), payload.size());
  } else if (header.codec == static_cast<std::uint8_t>(wire::CodecId::lossless) ||
             header.codec == static_cast<std::uint8_t>(wire::CodecId::xordelta)) {
    if (header.dtype != static_cast<std::uint8_t>(type)) return "a block of another dtype";
    const char* problem = deliver_lossless(op, number, sender, header, payload,
                                           {output, part.elements * dtype_bytes(type)});
    if (problem != nullptr) return problem;
  } else {
    const bool in_f32 = codec::accumulator_bytes(type) == sizeof(float) && dtype_is_float(type);
    if (!in_f32 || !role_may_be_lossy(static_cast<Role>(ops_.op(op).announced_first.role))) {
      return "a lossy block for an operation that must be exact";
    }
    const bool direct = type == DType::f32;
    float* out = direct ? as_floats(output) : as_floats(lane_->scratch(1).data());
    if (const char* problem =
            decode_block(op, number, sender, header, payload, {out, part.elements})) {
      return problem;
    }
    if (!direct) codec::from_f32(type, out, part.elements, output);
  }
  copy_to_other_ranks(op, part);
  const std::uint64_t end = lane_->clock().now_ns();
  data_[op].decode_ns += end - begin;
  if (lane_->trace().on()) {
    trace_codec(TraceKind::decode, op, number, sender, header, {begin, end, block.size()});
  }
  return nullptr;
}

void LaneGroup::copy_to_other_ranks(OpId op, const Part& part) {
  const std::size_t offset = part.begin * dtype_bytes(dtype(op));
  const std::size_t bytes = part.elements * dtype_bytes(dtype(op));
  for (std::uint32_t i = 1; i < local_ranks_; ++i) {
    if (rank_of(op, i).output == rank_of(op, 0).output) continue;
    std::memmove(rank_of(op, i).output + offset, rank_of(op, 0).output + offset, bytes);
  }
}

wire::FrameHeader LaneGroup::frame(wire::FrameKind kind, OpId op, std::uint32_t chunk,
                                   std::uint8_t leg) const {
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.group = setup_.token;
  header.epoch = setup_.epoch;
  header.tensor = ops_.op(op).key.tensor;
  header.op_seq = ops_.op(op).key.sequence;
  header.chunk = chunk;
  header.source_node = static_cast<std::uint16_t>(self_);
  header.leg = leg;
  return header;
}

void LaneGroup::send_to_all(const wire::FrameHeader& header, std::span<const std::byte> prefix,
                            std::span<const std::byte> body, std::uint64_t cookie) {
  // Every node begins with the one after it, so that not all send to one at a time.
  for (std::uint32_t step = 1; step < nodes_; ++step) {
    lane_->send(*peers_[(self_ + step) % nodes_], header, prefix, body, cookie);
  }
}

void LaneGroup::deliver_floats(OpId op, const Part& part, const float* values) {
  const DType type = dtype(op);
  codec::from_f32(type, values, part.elements,
                  rank_of(op, 0).output + part.begin * dtype_bytes(type));
  copy_to_other_ranks(op, part);
}

// Average before encoding, so that the residual is taken against what is delivered.
void LaneGroup::scale_sum(ChunkId chunk) {
  const OpId op = ops_.op_of(chunk);
  if (reduction(op) != Reduction::average) return;
  const Part where = part(op, ops_.chunk_number(chunk));
  std::byte* sum = lane_->accumulators().slab(chunks_[chunk].accumulator).data();
  codec::accumulate_finish(DType::f32, Reduction::average, sum, where.elements, setup_.size, sum);
}

// True: sent and delivered. False: a value is not finite, the (scaled) sum has to go raw.
bool LaneGroup::finish_lossy(OpId op, std::uint32_t number, const codec::Recipe& recipe,
                             std::span<const float> sum, float state_scale) {
  const Part where = part(op, number);
  const std::uint32_t slab = lane_->result_slabs().take();
  const auto memory = lane_->result_slabs().slab(slab);
  std::uint32_t bytes = 0;
  if (!encode_lossy(op, number, Leg::broadcast, recipe, sum, state_scale, data_[op].result_max,
                    memory, bytes)) {
    lane_->result_slabs().give(slab);
    return false;
  }
  OpData& data = data_[op];
  data.bytes_raw += std::uint64_t{where.elements} * dtype_bytes(dtype(op)) * (nodes_ - 1);
  data.bytes_sent += std::uint64_t{bytes} * (nodes_ - 1);
  const auto cookie = lane_->make_token(*job_, FrameToken::Leg::result, nodes_ - 1, nullptr,
                                        collective::kNoSlot, &lane_->result_slabs(), slab);
  // Everybody decodes the same bytes, the owner too; before they are sent, because a lost link
  // gives the slab back at once.
  const char* problem = nullptr;
  if (codec::needs_shift(recipe)) {
    deliver_floats(op, where, as_floats(lane_->scratch(1).data()));
  } else {
    problem = deliver_block(op, number, self_, memory.first(bytes));
  }
  send_to_all(frame(wire::FrameKind::result, op, number, 2), {}, memory.first(bytes), cookie);
  if (problem != nullptr) ops_.fail(op, {Errc::internal, collective::kNoRank, problem});
  return true;
}

void LaneGroup::finish_raw(ChunkId chunk, const codec::Recipe& recipe, Reduction how,
                           bool nonfinite) {
  const OpId op = ops_.op_of(chunk);
  const DType type = dtype(op);
  const std::uint32_t number = ops_.chunk_number(chunk);
  const Part where = part(op, number);
  const std::size_t bytes = where.elements * dtype_bytes(type);
  ChunkData& chunk_data = chunks_[chunk];
  SlabPool* pool = &lane_->accumulators();
  std::uint32_t slab = chunk_data.accumulator;
  std::byte* sum = pool->slab(slab).data();
  std::byte* result = sum;
  const bool narrows = codec::accumulator_bytes(type) != dtype_bytes(type);
  if (narrows) {
    pool = &lane_->result_slabs();
    slab = pool->take();
    result = pool->slab(slab).data();
  }
  codec::accumulate_finish(type, how, sum, where.elements, setup_.size, result);
  if (send_lossless_result(op, number, recipe, {result, bytes})) {
    if (narrows) pool->give(slab);
    return;
  }
  if (!narrows) chunk_data.accumulator = kNone;  // it is the frame's memory now

  auto header = frame(wire::FrameKind::result, op, number, 2);
  header.flags = wire::kFlagRawBlock;
  std::byte prefix[wire::kBlockHeaderBytes];
  wire::write_block_header(
      codec::raw_block_header(type, where.elements, nonfinite, ops_.op(op).key.sequence),
      std::span<std::byte, wire::kBlockHeaderBytes>(prefix));
  if (nodes_ > 1) {
    OpData& data = data_[op];
    data.bytes_raw += bytes * (nodes_ - 1);
    data.bytes_sent += (bytes + wire::kBlockHeaderBytes) * (nodes_ - 1);
  }
  const auto cookie = lane_->make_token(*job_, FrameToken::Leg::result, nodes_ - 1, nullptr,
                                        collective::kNoSlot, pool, slab);
  std::memcpy(rank_of(op, 0).output + where.begin * dtype_bytes(type), result, bytes);
  copy_to_other_ranks(op, where);
  if (nodes_ > 1) {
    send_to_all(header, prefix, {result, bytes}, cookie);
  } else {
    pool->give(slab);
    if (!narrows) --job_->held.accumulators;
  }
}

void LaneGroup::contribute_raw(OpId op, std::uint32_t node, wire::FrameHeader header,
                               const Part& part, const codec::Recipe& recipe, bool nonfinite) {
  const DType type = dtype(op);
  const std::size_t bytes = part.elements * dtype_bytes(type);
  std::byte prefix[wire::kBlockHeaderBytes];
  wire::write_block_header(
      codec::raw_block_header(type, part.elements, nonfinite, ops_.op(op).key.sequence),
      std::span<std::byte, wire::kBlockHeaderBytes>(prefix));
  OpData& data = data_[op];
  if (contribute_lossless(op, node, header, part, recipe)) return;
  header.flags = wire::kFlagRawBlock;
  data.bytes_raw += bytes;
  data.bytes_sent += bytes + wire::kBlockHeaderBytes;
  if (single_plain_input(op)) {
    pin(op);
    const auto cookie =
        lane_->make_token(*job_, FrameToken::Leg::contribution, 1, this, op, nullptr, kNone);
    lane_->send(*peers_[node], header, prefix,
                {rank_of(op, 0).input + part.begin * dtype_bytes(type), bytes}, cookie);
    return;
  }
  const std::uint32_t slab = lane_->send_slabs().take();
  const auto memory = lane_->send_slabs().slab(slab);
  write_own_contribution(op, part, memory.data());
  const auto cookie = lane_->make_token(*job_, FrameToken::Leg::contribution, 1, nullptr,
                                        collective::kNoSlot, &lane_->send_slabs(), slab);
  lane_->send(*peers_[node], header, prefix, memory.first(bytes), cookie);
}

}  // namespace tern::daemon
