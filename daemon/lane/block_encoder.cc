#include "daemon/lane/block_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bump.h"
#include "base/half.h"
#include "codec/accumulate.h"
#include "codec/codec.h"
#include "codec/draw_key.h"

namespace tern::daemon {

using collective::OpId;

namespace {

BlockCompletion elements_in(BlockForm form, std::size_t bytes, bool nonfinite = false) {
  BlockCompletion done;
  done.form = form;
  done.bytes = static_cast<std::uint32_t>(bytes);
  done.nonfinite = nonfinite;
  return done;
}

bool has_nonfinite(std::span<const float> values) {
  return codec::scan_max(values, nullptr, 1.0f).nonfinite;
}

// Values that leave, and are delivered, in the type of the tensor.
codec::Owed carried_as(DType type) {
  codec::Owed owed;
  owed.carried = owed.delivered = type;
  return owed;
}

}  // namespace

// ---- Contributions ------------------------------------------------------------------------------

BlockCompletion BlockEncoder::gather(const BlockRequest& request) {
  const ChunkPart all = blocks_.whole(request.op);
  values_.write(request.op, all, host_bytes(request.block).data());
  return elements_in(BlockForm::elements, blocks_.bytes(request.op, all));
}

// The client has encoded it, and may write to it meanwhile: what is checked is a copy, and the copy
// is what travels.
BlockCompletion BlockEncoder::take_block(const BlockRequest& request) {
  const std::uint64_t begin = blocks_.now_ns();
  const OpId op = request.op;
  const ChunkPart part = blocks_.part(op, request.number);
  const std::span<const std::byte> slot = values_.block(op, part);
  const std::span<std::byte> out = host_bytes(request.block);
  BlockCompletion done;
  wire::BlockHeader header;
  if (const auto error = wire::parse_block_header(slot, header); error != wire::BlockError::none) {
    done.problem = wire::block_error_text(error);
    return done;
  }
  const std::size_t bytes = wire::kBlockHeaderBytes + std::size_t{header.payload_bytes};
  if (header.elements != part.elements || bytes > slot.size()) {
    done.problem = "the block's sizes differ from the chunk's";
    return done;
  }
  const std::size_t most = EagerInputs::most_contribution(blocks_.op(op), blocks_.ops().shape());
  if (bytes > std::min(most, out.size())) {
    done.problem = "the block is longer than most_block_bytes: send the chunk raw";
    return done;
  }
  done.problem = decoder_.objection_to(request, header);
  if (done.problem != nullptr) return done;
  decoder_.note_use_by(op, header);
  wire::write_block_header(header, out.first<wire::kBlockHeaderBytes>());
  std::memcpy(out.data() + wire::kBlockHeaderBytes, slot.data() + wire::kBlockHeaderBytes,
              header.payload_bytes);
  const bool nonfinite = (header.flags & wire::kBlockNonfiniteRaw) != 0 &&
                         header.codec == static_cast<std::uint8_t>(wire::CodecId::raw);
  if (nonfinite) {
    bump(blocks_.counters().nonfinite_chunks, std::uint64_t{1});
    bump(blocks_.tensor_lane(op).counts.raw_fallbacks, std::uint64_t{1});
    blocks_.stats(op).error.nonfinite = true;
  }
  const std::uint64_t end = blocks_.now_ns();
  bump(blocks_.counters().client_blocks, std::uint64_t{1});
  blocks_.add_encode(op, end - begin);
  blocks_.trace(TraceKind::encode, request, header, {begin, end});
  return elements_in(BlockForm::encoded, bytes);
}

BlockCompletion BlockEncoder::encode(const BlockRequest& request) {
  const OpId op = request.op;
  if (blocks_.slots(op) != nullptr) return take_block(request);
  const OpEncoding& encoding = blocks_.encoding(op);
  const ChunkPart part = blocks_.part(op, request.number);
  if (encoding.coding_by(*request.recipe) == Coding::lossy) {
    // What travels with its announcement is one part; of others every chunk has been looked through.
    if (codec::scans_tensor(encoding.recipe) && blocks_.op(op).is_eager()) scan_part(op, part);
    const Encoded encoded =
        encode_lossy(request, {wire::Leg::reduce, values_.floats(op, part), encoding.state_scale});
    if (!encoded.nonfinite) return elements_in(BlockForm::encoded, encoded.bytes);
    return encode_exact(request, true);
  }
  if (has_pending_residual(request)) {
    // What loses nothing carries the pending residual as well, in plain elements.
    const std::span<float> sum = blocks_.scratch_floats(1, part.elements);
    const auto input = values_.floats(op, part);
    std::copy(input.begin(), input.end(), sum.begin());
    if (pay_back(request, carried_as(blocks_.dtype(op)), sum)) {
      codec::from_f32(blocks_.dtype(op), sum.data(), part.elements,
                      host_bytes(request.block).data());
      return elements_in(BlockForm::elements, blocks_.bytes(op, part));
    }
  }
  return encode_exact(request, false);
}

BlockCompletion BlockEncoder::encode_exact(const BlockRequest& request, bool nonfinite) {
  const OpId op = request.op;
  const ChunkPart part = blocks_.part(op, request.number);
  const std::size_t bytes = blocks_.bytes(op, part);
  const bool plain = values_.is_plain(op);
  if (blocks_.encoding(op).coding_by(*request.recipe) == Coding::lossless) {
    if (!plain) values_.write(op, part, blocks_.scratch(1).data());
    const std::byte* const input = plain ? values_.plain(op, part) : blocks_.scratch(1).data();
    const std::uint32_t used = encode_lossless(request, {input, bytes});
    if (used != 0) return elements_in(BlockForm::encoded, used);
  }
  if (plain) return elements_in(BlockForm::input, bytes, nonfinite);
  values_.write(op, part, host_bytes(request.block).data());
  return elements_in(BlockForm::elements, bytes, nonfinite);
}

// ---- Results ------------------------------------------------------------------------------------

BlockCompletion BlockEncoder::finish(const BlockRequest& request) {
  const OpId op = request.op;
  const OpEncoding& encoding = blocks_.encoding(op);
  const codec::Recipe& recipe = *request.recipe;
  const bool keeps_sums = blocks_.op(op).plan->keeps_sums();
  const bool lossy = encoding.coding_by(recipe) == Coding::lossy && !keeps_sums;
  if (!lossy && !has_pending_residual(request))
    return finish_exact(request, blocks_.reduction(op), false);

  const std::span<float> sum{as_floats(host_bytes(request.sum).data()),
                             blocks_.part(op, request.number).elements};
  const bool averages = blocks_.reduction(op) == Reduction::average;
  // What this node owes it has left out of a contribution, when another root kept the sum.
  if (keeps_sums) {
    codec::Owed owed;
    owed.delivered = blocks_.dtype(op);
    if (averages) owed.share = 1.0f / static_cast<float>(blocks_.identity().size);
    const bool paid = pay_back(request, owed, sum);
    return finish_exact(request, blocks_.reduction(op), !paid && has_nonfinite(sum));
  }
  blocks_.tensor(op)->averages.store(averages, std::memory_order_relaxed);
  // Average before encoding, so that the residual is taken against what is delivered.
  if (averages) {
    std::byte* const bytes = host_bytes(request.sum).data();
    codec::accumulate_finish(Reduction::average, bytes, blocks_.identity().size,
                             {DType::f32, bytes, sum.size()});
  }
  if (!lossy) {
    const bool paid = pay_back(request, carried_as(blocks_.dtype(op)), sum);
    return finish_exact(request, Reduction::sum, !paid && has_nonfinite(sum));
  }
  const bool scans = codec::scans_tensor(recipe);
  if (scans && park(request, sum)) return elements_in(BlockForm::parked, 0);
  const bool raw = codec::results_are_raw(recipe);
  if (!raw && !scans) {
    const BlockCompletion done = finish_lossy(request, sum, encoding.state_scale);
    if (done.form != BlockForm::none) return done;
  }
  return finish_exact(request, Reduction::sum, !raw);
}

BlockCompletion BlockEncoder::finish_parked(const BlockRequest& request) {
  const auto zeros = blocks_.scratch_floats(0, blocks_.part(request.op, request.number).elements);
  std::fill(zeros.begin(), zeros.end(), 0.0f);
  const BlockCompletion done = finish_lossy(request, zeros, 1.0f);
  // The operation fails. What was parked is neither sum nor residual any more.
  if (done.form == BlockForm::none) {
    const ChunkPart part = blocks_.part(request.op, request.number);
    std::fill_n(blocks_.tensor(request.op)->codec.sender(part.begin), part.elements, 0.0f);
  }
  return done;
}

// Form none: a value is not finite, the (scaled) sum has to go as it is.
BlockCompletion BlockEncoder::finish_lossy(const BlockRequest& request, std::span<const float> sum,
                                           float state_scale) {
  const Encoded encoded = encode_lossy(request, {wire::Leg::broadcast, sum, state_scale});
  BlockCompletion done;
  if (encoded.nonfinite) return done;
  done = elements_in(BlockForm::encoded, encoded.bytes);
  // Everybody who gets the result decodes the same bytes, the owner too.
  if (codec::needs_shift(*request.recipe)) {
    const ChunkPart part = blocks_.part(request.op, request.number);
    values_.deliver_floats(request.op, part, blocks_.scratch_floats(1, part.elements).data());
  } else if (blocks_.op(request.op).chunks.goes_to(blocks_.self(), request.number)) {
    done.problem = decoder_.deliver_own(request, host_bytes(request.block).first(encoded.bytes));
  }
  return done;
}

BlockCompletion BlockEncoder::finish_exact(const BlockRequest& request, Reduction how,
                                           bool nonfinite) {
  const OpId op = request.op;
  const DType type = blocks_.dtype(op);
  const ChunkPart part = blocks_.part(op, request.number);
  const std::size_t bytes = blocks_.bytes(op, part);
  const bool narrows = codec::accumulator_bytes(type) != dtype_bytes(type);
  const bool shortens = blocks_.encoding(op).coding_by(*request.recipe) == Coding::lossless &&
                        blocks_.op(op).chunks.leaves(blocks_.self(), request.number);
  std::byte* const sum = host_bytes(request.sum).data();
  std::byte* result = sum;
  if (narrows) {
    result = shortens ? blocks_.scratch(1).data() : host_bytes(request.block).data();
  }
  codec::accumulate_finish(how, sum, blocks_.identity().size, {type, result, part.elements});
  values_.deliver(op, part, result);
  if (shortens) {
    const std::uint32_t used = encode_lossless(request, {result, bytes});
    if (used != 0) return elements_in(BlockForm::encoded, used);
    if (narrows) std::memcpy(host_bytes(request.block).data(), result, bytes);
  }
  return elements_in(narrows ? BlockForm::elements : BlockForm::sum, bytes, nonfinite);
}

BlockCompletion BlockEncoder::publish(const BlockRequest& request) {
  const OpId op = request.op;
  if (blocks_.encoding(op).coding_by(*request.recipe) == Coding::lossy &&
      blocks_.op(op).chunks.leaves(blocks_.self(), request.number)) {
    return publish_lossy(request);
  }
  if (has_pending_residual(request)) {
    const BlockCompletion done = publish_with_residual(request);
    if (done.form != BlockForm::none) return done;
  }
  return publish_exact(request, false);
}

// In plain elements, which nobody gets otherwise. Form none: a value is not finite.
BlockCompletion BlockEncoder::publish_with_residual(const BlockRequest& request) {
  const OpId op = request.op;
  const ChunkPart part = blocks_.part(op, request.number);
  const std::span<float> values = blocks_.scratch_floats(1, part.elements);
  const auto input = values_.moved_floats(op, part);
  std::copy(input.begin(), input.end(), values.begin());
  if (!pay_back(request, carried_as(blocks_.dtype(op)), values)) return {};
  std::byte* const elements = host_bytes(request.block).data();
  codec::from_f32(blocks_.dtype(op), values.data(), part.elements, elements);
  if (blocks_.op(op).chunks.goes_to(blocks_.self(), request.number)) {
    values_.deliver(op, blocks_.result_part(op, request.number), elements);
  }
  return elements_in(BlockForm::elements, blocks_.bytes(op, part));
}

// Nobody gets the values as they are, the ranks of this node neither: all copies are alike.
BlockCompletion BlockEncoder::publish_lossy(const BlockRequest& request) {
  const OpId op = request.op;
  const OpEncoding& encoding = blocks_.encoding(op);
  const ChunkPart part = blocks_.part(op, request.number);
  const BlockCompletion done =
      finish_lossy(request, values_.moved_floats(op, part), encoding.state_scale);
  return done.form != BlockForm::none ? done : publish_exact(request, true);
}

BlockCompletion BlockEncoder::publish_exact(const BlockRequest& request, bool nonfinite) {
  const OpId op = request.op;
  const ChunkPart part = blocks_.part(op, request.number);
  const std::size_t bytes = blocks_.bytes(op, part);
  const std::byte* const input = values_.moved_input(op, part);
  BlockCompletion done = elements_in(BlockForm::input, bytes, nonfinite);
  const collective::ChunkMap& chunks = blocks_.op(op).chunks;
  if (blocks_.encoding(op).coding_by(*request.recipe) == Coding::lossless &&
      !request.block.empty() && chunks.leaves(blocks_.self(), request.number)) {
    const std::uint32_t used = encode_lossless(request, {input, bytes});
    if (used != 0) done = elements_in(BlockForm::encoded, used);
  }
  if (chunks.goes_to(blocks_.self(), request.number)) {
    values_.deliver(op, blocks_.result_part(op, request.number), input);
  }
  return done;
}

// ---- Codecs -------------------------------------------------------------------------------------

// What the op's tensor remembers, and what follows from it.
void BlockEncoder::use_state(const BlockRequest& request, wire::Leg leg,
                             codec::EncodeRequest& encode) {
  const OpId op = request.op;
  const codec::Recipe& recipe = *request.recipe;
  TensorState& tensor = *blocks_.tensor(op);
  CodecState& state = tensor.codec;
  encode.state = state.sender(blocks_.part(op, request.number).begin);
  encode.alpha = state.alpha();
  // Levels of another number of bits are no beginning for these.
  // Where the op is cut as a whole each chunk has a book.
  if (blocks_.op(op).plan->parts == plan::Parts::whole &&
      recipe.quantizer.bits == tensor.declared.recipe.quantizer.bits) {
    encode.codebook = state.codebook(request.number);
  }
  // Not state.has_streams(): an op may override xordelta, whose stream then stands still.
  if (!codec::needs_shift(recipe)) return;
  encode.stream_step = state.sender_step(request.number);
  if (encode.stream_step == 0) std::fill_n(encode.state, encode.input.size(), 0.0f);
  // A slab has no room for f32 values of a tensor of two bytes per element: its shift has to learn.
  encode.exact = encode.stream_step == 0 && blocks_.dtype(op) == DType::f32 &&
                 recipe.memory == codec::Memory::ef21;
  if (leg == wire::Leg::broadcast) {
    encode.delivered_out = as_floats(blocks_.scratch(1).data());
  }
}

void BlockEncoder::count_sent(const BlockRequest& request) {
  ++blocks_.tensor(request.op)->codec.sender_step(request.number);
  blocks_.tensor_lane(request.op).streams.sent = true;
}

// Not finite: nothing has changed.
BlockEncoder::Encoded BlockEncoder::encode_lossy(const BlockRequest& request,
                                                 const LossyInput& input) {
  const OpId op = request.op;
  const codec::Recipe& recipe = *request.recipe;
  // Null: the op has none, and so no memory.
  TensorState* const tensor = blocks_.tensor(op);
  BlockStats& stats = blocks_.stats(op);
  const plan::Plan& plan = *blocks_.op(op).plan;
  // Two kinds of operation have begun at once: this one goes raw.
  if (codec::has_memory(recipe) && !tensor->memory_use.take(user_of(blocks_.op(op)))) {
    return {0, true};
  }
  const bool result = input.leg == wire::Leg::broadcast;
  const std::span<std::byte> slab = host_bytes(request.block);
  codec::EncodeRequest encode;
  encode.input = input.values;
  encode.state_scale = input.state_scale;
  encode.delivered = result ? blocks_.dtype(op) : DType::f32;
  encode.fixed_scale_max =
      result && plan.reduces() ? stats.results_max : stats.contributions_max.value_or(0.0f);
  encode.stream_step = blocks_.sequence(op);
  encode.key = codec::DrawKey{blocks_.identity().seed,
                              tensor != nullptr ? tensor->id : 0,
                              blocks_.sequence(op),
                              blocks_.self(),
                              result,
                              request.number}
                   .mixed();
  encode.sparsify = !result || plan.moves() || codec::sparsifies_results(recipe);
  if (tensor != nullptr) use_state(request, input.leg, encode);
  const bool shifts = codec::needs_shift(recipe);
  wire::BlockHeader header;
  const std::uint64_t begin = blocks_.now_ns();
  const auto encoded = codec::encode(
      recipe, encode, {slab.subspan(wire::kBlockHeaderBytes), header}, blocks_.workspace());
  const std::uint64_t end = blocks_.now_ns();
  blocks_.add_encode(op, end - begin);
  if (stats.first_encode_ns == 0) stats.first_encode_ns = begin;
  if (encoded.nonfinite) {
    bump(blocks_.counters().nonfinite_chunks, std::uint64_t{1});
    if (tensor != nullptr) bump(blocks_.tensor_lane(op).counts.raw_fallbacks, std::uint64_t{1});
    stats.error.nonfinite = true;
    return {0, true};
  }
  if (shifts) count_sent(request);
  wire::write_block_header(header, slab.first<wire::kBlockHeaderBytes>());
  blocks_.trace(TraceKind::encode, request, header, {begin, end});
  stats.encoded_bytes += input.values.size() * dtype_bytes(blocks_.dtype(op));
  if (tensor != nullptr && tensor->tuning) tensor->tuning->residual_pending(request.number) = 1;
  tuner::LegEnergies& part = result ? stats.error.results : stats.error.contributions;
  part.energy += encoded.input_energy;
  part.elements += input.values.size();
  part.residual_energy += encoded.residual_energy;
  return {static_cast<std::uint32_t>(wire::kBlockHeaderBytes) + encoded.payload_bytes, false};
}

// 0: the block would not be shorter than the elements. The recipe is lossless or xordelta.
std::uint32_t BlockEncoder::encode_lossless(const BlockRequest& request,
                                            std::span<const std::byte> input) {
  const OpId op = request.op;
  BlockStats& stats = blocks_.stats(op);
  const ChunkPart part = blocks_.part(op, request.number);
  const std::span<std::byte> slab = host_bytes(request.block);
  std::span<std::byte> last;
  std::uint64_t step = blocks_.sequence(op);
  const codec::Recipe& recipe = *request.recipe;
  const bool delta = recipe.compressor == codec::Compressor::xordelta;
  if (delta) {
    CodecState& state = blocks_.tensor(op)->codec;
    last = state.sent_bytes(part.begin, part.elements);
    step = state.sender_step(request.number);
    if (step == 0) std::fill(last.begin(), last.end(), std::byte{0});
  }
  wire::BlockHeader header;
  const std::uint64_t begin = blocks_.now_ns();
  const std::uint32_t payload =
      codec::encode_lossless(recipe, {blocks_.dtype(op), input, last, step},
                             {slab.subspan(wire::kBlockHeaderBytes), header}, blocks_.workspace());
  const std::uint64_t end = blocks_.now_ns();
  blocks_.add_encode(op, end - begin);
  if (stats.first_encode_ns == 0) stats.first_encode_ns = begin;
  if (payload == 0) return 0;
  stats.encoded_bytes += input.size();
  if (delta) count_sent(request);
  wire::write_block_header(header, slab.first<wire::kBlockHeaderBytes>());
  blocks_.trace(TraceKind::encode, request, header, {begin, end});
  return static_cast<std::uint32_t>(wire::kBlockHeaderBytes) + payload;
}

// ---- One scale for a whole tensor ---------------------------------------------------------------

// One chunk of all that this node sends of the op.
BlockCompletion BlockEncoder::scan(const BlockRequest& request) {
  const std::uint64_t begin = blocks_.now_ns();
  scan_part(request.op, blocks_.part(request.op, request.number));
  blocks_.add_encode(request.op, blocks_.now_ns() - begin);
  return {};
}

void BlockEncoder::scan_part(OpId op, const ChunkPart& part) {
  const float* const residual = blocks_.tensor(op)->codec.sender(part.begin);
  const auto values =
      blocks_.op(op).plan->moves() ? values_.moved_floats(op, part) : values_.floats(op, part);
  const auto found = codec::scan_max(values, residual, blocks_.encoding(op).state_scale);
  std::optional<float>& max = blocks_.stats(op).contributions_max;
  max = std::max(max.value_or(0.0f), found.nonfinite ? 0.0f : found.max);
}

// The sum waits as residual + sum in the residual's place. False: it goes raw at once, because its
// scale would not be finite where results are delivered, or because two kinds of operation have
// begun at once and the residual is the other's.
bool BlockEncoder::park(const BlockRequest& request, std::span<const float> sum) {
  const OpId op = request.op;
  TensorState& tensor = *blocks_.tensor(op);
  const float state_scale = blocks_.encoding(op).state_scale;
  float* const residual = tensor.codec.sender(blocks_.part(op, request.number).begin);
  const auto scan = codec::scan_max(sum, residual, state_scale);
  const float scale = round_to_dtype(blocks_.dtype(op), scan.max * request.recipe->s);
  if (scan.nonfinite || !std::isfinite(scale)) return false;
  if (!tensor.memory_use.take(user_of(blocks_.op(op)))) return false;
  float& max = blocks_.stats(op).results_max;
  max = std::max(max, scan.max);
  for (std::size_t i = 0; i < sum.size(); ++i) residual[i] = sum[i] + state_scale * residual[i];
  return true;
}

// ---- Residuals that a lossy recipe left to an exact one -----------------------------------------

bool BlockEncoder::has_pending_residual(const BlockRequest& request) const {
  const OpEncoding& encoding = blocks_.encoding(request.op);
  if (!encoding.lossy || encoding.tuning == nullptr) return false;
  // What two bytes have rounded away follows the scale, too.
  const bool follows = encoding.state_scale != 1.0f && dtype_bytes(blocks_.dtype(request.op)) == 2;
  return (follows || encoding.tuning->residual_pending(request.number) != 0) &&
         blocks_.tensor(request.op)->memory_use.admits(user_of(blocks_.op(request.op)));
}

// Adds what earlier blocks of the chunk left out; no more than its rounding is owed then. False: a
// value would not be finite, and the residual stays.
bool BlockEncoder::pay_back(const BlockRequest& request, codec::Owed owed,
                            std::span<float> values) {
  const OpEncoding& encoding = blocks_.encoding(request.op);
  owed.residual =
      blocks_.tensor(request.op)->codec.sender(blocks_.part(request.op, request.number).begin);
  owed.state_scale = encoding.state_scale;
  if (!codec::pay_back(owed, values)) return false;
  encoding.tuning->residual_pending(request.number) = 0;
  return true;
}

}  // namespace tern::daemon
