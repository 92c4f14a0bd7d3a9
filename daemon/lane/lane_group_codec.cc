// Chunks to blocks and back, with what the node remembers of the tensor.

#include <algorithm>
#include <cstring>

#include "codec/accumulate.h"
#include "codec/draw_key.h"
#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"
#include "daemon/tensor/state_part.h"

namespace tern::daemon {

using collective::OpId;

// True: the block is in slab. False: a value is not finite, nothing has changed, the chunk goes
// raw.
bool LaneGroup::encode_lossy(OpId op, std::uint32_t number, Leg leg, const codec::Recipe& recipe,
                             std::span<const float> input, float state_scale, float fixed_max,
                             std::span<std::byte> slab, std::uint32_t& bytes) {
  OpData& data = data_[op];
  CodecState& state = data.tensor->codec;
  const std::uint64_t sequence = ops_.op(op).key.sequence;
  codec::EncodeRequest request;
  request.input = input;
  request.state = state.sender(part(op, number).begin);
  request.state_scale = state_scale;
  request.delivered = leg == Leg::broadcast ? dtype(op) : DType::f32;
  request.fixed_scale_max = fixed_max;
  request.stream_step = sequence;
  // Not state.has_streams(): an op may override xordelta, whose stream then stands still.
  const bool shifts = codec::needs_shift(recipe);
  if (shifts) {
    request.stream_step = state.sender_step(number);
    if (request.stream_step == 0) std::fill_n(request.state, input.size(), 0.0f);
    // A slab has no room for f32 values of a tensor of two bytes per element: its shift has to
    // learn.
    request.exact =
        request.stream_step == 0 && dtype(op) == DType::f32 && recipe.memory == codec::Memory::ef21;
  }
  request.key =
      codec::DrawKey{setup_.seed, data.tensor->id, sequence, self_, leg == Leg::broadcast, number}
          .mixed();
  request.sparsify = leg == Leg::reduce || codec::sparsifies_results(recipe);
  request.alpha = state.alpha();
  // Levels of another number of bits are no beginning for these.
  if (recipe.quantizer.bits == data.tensor->recipe.quantizer.bits) {
    request.codebook = state.codebook(number);
  }
  if (leg == Leg::broadcast && shifts) {
    request.delivered_out = static_cast<float*>(static_cast<void*>(lane_->scratch(1).data()));
  }
  wire::BlockHeader header;
  const std::uint64_t begin = lane_->clock().now_ns();
  const auto result = codec::encode(recipe, request, slab.subspan(wire::kBlockHeaderBytes), header,
                                    lane_->codec_workspace());
  const std::uint64_t end = lane_->clock().now_ns();
  data.encode_ns += end - begin;
  if (data.first_encode_ns == 0) data.first_encode_ns = begin;
  if (result.nonfinite) {
    bump(lane_->mutable_counters().nonfinite_chunks, std::uint64_t{1});
    bump(data.tensor->lanes[setup_.shape.lane].raw_fallbacks, std::uint64_t{1});
    data.error.nonfinite = true;
    return false;
  }
  if (shifts) ++state.sender_step(number);
  wire::write_block_header(header, slab.first<wire::kBlockHeaderBytes>());
  bytes = static_cast<std::uint32_t>(wire::kBlockHeaderBytes) + result.payload_bytes;
  if (lane_->trace().on()) {
    trace_codec(TraceKind::encode, op, number, self_, header, {begin, end, bytes});
  }
  data.encoded_bytes += input.size() * dtype_bytes(dtype(op));
  if (data.tensor->tuning) data.tensor->tuning->owes(number) = 1;
  tuner::EncodedPart& encoded =
      leg == Leg::broadcast ? data.error.results : data.error.contributions;
  encoded.energy += result.input_energy;
  encoded.elements += input.size();
  encoded.residual_energy += result.residual_energy;
  return true;
}

// True: the block is in slab, shorter than the elements. `recipe` is lossless or xordelta.
bool LaneGroup::encode_lossless(OpId op, std::uint32_t number, const codec::Recipe& recipe,
                                std::span<const std::byte> input, std::span<std::byte> slab,
                                std::uint32_t& bytes) {
  OpData& data = data_[op];
  const Part where = part(op, number);
  std::span<std::byte> last;
  std::uint64_t step = ops_.op(op).key.sequence;
  const bool delta = recipe.compressor == codec::Compressor::xordelta;
  if (delta) {
    CodecState& state = data.tensor->codec;
    last = state.sent_bytes(where.begin, where.elements);
    step = state.sender_step(number);
    if (step == 0) std::fill(last.begin(), last.end(), std::byte{0});
  }
  wire::BlockHeader header;
  const std::uint64_t begin = lane_->clock().now_ns();
  const std::uint32_t payload = codec::encode_lossless(recipe, dtype(op), input, last, step,
                                                       slab.subspan(wire::kBlockHeaderBytes),
                                                       header, lane_->codec_workspace());
  const std::uint64_t end = lane_->clock().now_ns();
  data.encode_ns += end - begin;
  if (data.first_encode_ns == 0) data.first_encode_ns = begin;
  if (payload == 0) return false;
  data.encoded_bytes += input.size();
  if (delta) ++data.tensor->codec.sender_step(number);
  wire::write_block_header(header, slab.first<wire::kBlockHeaderBytes>());
  bytes = static_cast<std::uint32_t>(wire::kBlockHeaderBytes) + payload;
  if (lane_->trace().on()) {
    trace_codec(TraceKind::encode, op, number, self_, header, {begin, end, bytes});
  }
  return true;
}

const char* LaneGroup::decode_block(OpId op, std::uint32_t number, std::uint32_t sender,
                                    const wire::BlockHeader& header,
                                    std::span<const std::byte> payload, std::span<float> out) {
  OpData& data = data_[op];
  codec::DecodeStatus status{};
  if (data.tensor == nullptr || data.tensor->exempt) return "a lossy block for an exempt tensor";
  if (codec::needs_shift(data.recipe)) {
    if (!data.tensor->codec.has_streams()) return "a difference to a shift that nobody keeps";
    const auto stream =
        data.tensor->codec.stream(sender, number, part(op, number).begin, data.state_scale);
    status = codec::decode_shifted(header, payload, stream, out, lane_->codec_workspace());
  } else {
    status = codec::decode(header, payload, out, lane_->codec_workspace());
  }
  return status == codec::DecodeStatus::ok ? nullptr : codec::decode_status_name(status).data();
}

bool LaneGroup::contribute_lossless(OpId op, std::uint32_t node, wire::FrameHeader header,
                                    const Part& part, const codec::Recipe& recipe) {
  OpData& data = data_[op];
  if (!data.lossless || !codec::is_lossless(recipe)) return false;
  const std::size_t bytes = part.elements * dtype_bytes(dtype(op));
  const std::uint32_t slab = lane_->send_slabs().take();
  if (slab == kNone) return false;
  const auto memory = lane_->send_slabs().slab(slab);
  std::span<const std::byte> input{rank_of(op, 0).input + part.begin * dtype_bytes(dtype(op)),
                                   bytes};
  if (!single_plain_input(op)) {
    const auto own = lane_->scratch(1);
    write_own_contribution(op, part, own.data());
    input = own.first(bytes);
  }
  // Of contributions nobody keeps the last ones: each goes to another owner than the result.
  codec::Recipe here = recipe;
  here.compressor = codec::Compressor::lossless;
  std::uint32_t used = 0;
  if (!encode_lossless(op, header.chunk, here, input, memory, used)) {
    lane_->send_slabs().give(slab);
    return false;
  }
  data.bytes_raw += bytes;
  data.bytes_sent += used;
  const auto cookie = lane_->make_token(*job_, FrameToken::Leg::contribution, 1, nullptr,
                                        collective::kNoSlot, &lane_->send_slabs(), slab);
  lane_->send(*peers_[node], header, {}, memory.first(used), cookie);
  return true;
}

// Sends the elements of a chunk to all, if a lossless codec makes them fewer bytes. The outputs of
// the ranks here are the caller's part, but for a reduction.
bool LaneGroup::send_lossless_result(OpId op, std::uint32_t number, const codec::Recipe& recipe,
                                     std::span<const std::byte> result) {
  OpData& data = data_[op];
  if (!data.lossless || !codec::is_lossless(recipe) || nodes_ == 1) return false;
  const std::uint32_t slab = lane_->result_slabs().take();
  if (slab == kNone) return false;
  const auto memory = lane_->result_slabs().slab(slab);
  codec::Recipe here = recipe;
  const bool reduces = ops_.op(op).plan->reduces();
  if (reduces) here.compressor = codec::Compressor::lossless;
  std::uint32_t used = 0;
  if (!encode_lossless(op, number, here, result, memory, used)) {
    lane_->result_slabs().give(slab);
    return false;
  }
  data.bytes_raw += result.size() * (nodes_ - 1);
  data.bytes_sent += std::uint64_t{used} * (nodes_ - 1);
  const auto cookie = lane_->make_token(*job_, FrameToken::Leg::result, nodes_ - 1, nullptr,
                                        collective::kNoSlot, &lane_->result_slabs(), slab);
  if (reduces) {
    const Part where = part(op, number);
    std::memcpy(rank_of(op, 0).output + where.begin * dtype_bytes(dtype(op)), result.data(),
                result.size());
    copy_to_other_ranks(op, where);
  }
  send_to_all(frame(wire::FrameKind::result, op, number, 2), {}, memory.first(used), cookie);
  return true;
}

const char* LaneGroup::deliver_lossless(OpId op, std::uint32_t number, std::uint32_t sender,
                                        const wire::BlockHeader& header,
                                        std::span<const std::byte> payload,
                                        std::span<std::byte> out) {
  std::span<std::byte> last;
  OpData& data = data_[op];
  const bool delta = header.codec == static_cast<std::uint8_t>(wire::CodecId::xordelta);
  if (delta) {
    if (data.tensor == nullptr || data.tensor->recipe.compressor != codec::Compressor::xordelta ||
        !data.tensor->codec.has_streams()) {
      return "a difference to a value that nobody keeps";
    }
    CodecState& state = data.tensor->codec;
    const Part where = part(op, number);
    last = state.received_bytes(sender, where.begin, where.elements);
    if (header.stream_step == 0) {
      std::fill(last.begin(), last.end(), std::byte{0});
    } else if (header.stream_step != state.receiver_step(sender, number)) {
      return codec::decode_status_name(codec::DecodeStatus::state_gap).data();
    }
  }
  const auto status = codec::decode_lossless(header, payload, last, out, lane_->codec_workspace());
  if (status != codec::DecodeStatus::ok) return codec::decode_status_name(status).data();
  if (delta) data.tensor->codec.receiver_step(sender, number) = header.stream_step + 1;
  return nullptr;
}

// Calls use(chunk) for this lane's chunks until one returns false.
template <typename Use>
bool LaneGroup::for_each_chunk(const TensorState& tensor, Use use) const {
  const auto sharding = shm::make_sharding({.tensor = tensor.id,
                                            .count = tensor.count,
                                            .dtype = tensor.dtype,
                                            .chunk_bytes = setup_.shape.chunk_bytes,
                                            .nodes = nodes_,
                                            .lanes = setup_.shape.lanes,
                                            .one_lane = tensor.one_lane});
  for (std::uint64_t i = 0; i < sharding.chunk_count; ++i) {
    if (sharding.lane(i) == setup_.shape.lane && !use(static_cast<std::uint32_t>(i))) return false;
  }
  return true;
}

void LaneGroup::lose_state(OpId op) {
  forget_parked(op);
  lose_streams(op);
  // The first rank that leaves ends ops, and the last one the epoch.
  if (ops_.op(op).status == Errc::group_left) doubt(op);
}

// How much of what the residual was about has been delivered, nobody knows.
void LaneGroup::doubt(OpId op) {
  if (data_[op].tensor == nullptr || !data_[op].lossy || !ops_.op(op).started) return;
  data_[op].tensor->doubtful.store(true, std::memory_order_relaxed);
}

// A failed op may have moved one end of a stream and not the other, and it may have failed on this
// node alone. What we send begins anew. What we receive is refused until it does, which the next
// announcement asks of the others.
void LaneGroup::lose_streams(OpId op) {
  TensorState* const tensor = data_[op].tensor;
  if (tensor == nullptr || !tensor->codec.has_streams()) return;
  restart_streams(*tensor);
  for_each_chunk(*tensor, [tensor](std::uint32_t chunk) {
    tensor->codec.lose_received(chunk);
    return true;
  });
  tensor->lanes[setup_.shape.lane].streams_lost = true;
  count_resets(*tensor, 1);
}

// With the epoch all of the state ends: the next declaration counts that.
void LaneGroup::count_resets(TensorState& tensor, std::uint64_t resets) {
  if (ops_.ended()) return;
  bump(tensor.lanes[setup_.shape.lane].resets, resets);
  lane_->report(event::StateReset{this, tensor.id, resets});
}

// Readers follow when they see step 0.
void LaneGroup::restart_streams(TensorState& tensor) {
  if (!tensor.codec.has_streams()) return;
  for_each_chunk(tensor, [&tensor](std::uint32_t chunk) {
    tensor.codec.sender_step(chunk) = 0;
    return true;
  });
}

// Exports or imports the records of this lane's chunks.
void LaneGroup::move_state(const StateMove& move, event::StateMoved& outcome) {
  const auto fail = [&outcome](Errc code, const char* text) {
    outcome.code = code;
    outcome.text = Sentence(text);
  };
  for (OpId op = 0; op < ops_.slots(); ++op) {
    if (ops_.in_use(op) && !ops_.op(op).completing && data_[op].tensor == move.tensor) {
      return fail(Errc::would_block, "operations on the tensor are in flight: wait for them first");
    }
  }
  TensorState& tensor = *move.tensor;
  const bool sound = for_each_chunk(tensor, [&](std::uint32_t chunk) {
    if (!move.imports) {
      move.part.export_chunk(tensor.codec, chunk, move.room);
      return true;
    }
    if (tensor.tuning && codec::needs_residual(tensor.recipe)) tensor.tuning->owes(chunk) = 1;
    return move.same_layout ? move.part.import_chunk(tensor.codec, chunk,
                                                     move.room.subspan(move.own, move.part.bytes()))
                            : move.part.refold_chunk(tensor.codec, chunk, move.room);
  });
  if (!sound) return fail(Errc::invalid_argument, "the state holds values that are not finite");
}

}  // namespace tern::daemon
