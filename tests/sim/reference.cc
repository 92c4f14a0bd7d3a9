#include "reference.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "codec/accumulate.h"
#include "codec/draw_key.h"

namespace tern::sim {
namespace {

float* as_floats(Bytes& bytes) { return reinterpret_cast<float*>(bytes.data()); }

// The op's own recipe works inside the declared memory.
codec::Recipe recipe_of(const OpRequest& op, const Tensor& tensor) {
  const codec::Recipe declared =
      *codec::parse_recipe(tensor.spec.recipe.empty() ? "raw" : tensor.spec.recipe);
  if (op.recipe.empty()) return declared;
  codec::Recipe recipe = *codec::parse_recipe(op.recipe);
  recipe.memory = declared.memory;
  return recipe;
}

}  // namespace

Bytes bytes_of(DType dtype, const std::vector<float>& values) {
  Bytes bytes(values.size() * dtype_bytes(dtype));
  if (dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16) {
    codec::from_f32(dtype, values.data(), values.size(), bytes.data());
    return bytes;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* at = bytes.data() + i * dtype_bytes(dtype);
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    if (dtype == DType::f64) put(static_cast<double>(values[i]));
    if (dtype == DType::i64) put(static_cast<std::int64_t>(values[i]));
    if (dtype == DType::i32) put(static_cast<std::int32_t>(values[i]));
    if (dtype == DType::c64) put(std::complex<float>(values[i], 2 * values[i]));
    if (dtype == DType::c128) put(std::complex<double>(values[i], 2.0 * values[i]));
    if (dtype_is_float(dtype) || dtype_is_complex(dtype)) continue;  // perhaps no number at all
    const int whole = static_cast<int>(values[i]);
    if (dtype == DType::u8) put(static_cast<std::uint8_t>(whole));
    if (dtype == DType::i8) put(static_cast<std::int8_t>(whole));
    if (dtype == DType::boolean) put(static_cast<std::uint8_t>(whole != 0 ? 1 : 0));
    if (dtype == DType::i16) put(static_cast<std::int16_t>(whole));
    if (dtype == DType::u16) put(static_cast<std::uint16_t>(whole));
    if (dtype == DType::u32) put(static_cast<std::uint32_t>(whole));
    if (dtype == DType::u64) put(static_cast<std::uint64_t>(whole));
    // Nobody reads them as numbers.
    if (dtype_is_fp8(dtype)) put(static_cast<std::uint8_t>(whole));
  }
  return bytes;
}

std::vector<float> floats_of(DType dtype, const Bytes& bytes) {
  std::vector<float> values(bytes.size() / dtype_bytes(dtype));
  codec::to_f32(dtype, bytes.data(), values.size(), values.data());
  return values;
}

bool Reference::is_lossy(const OpRequest& op, const Tensor* tensor) const {
  const std::uint64_t bytes = op.count * dtype_bytes(op.dtype);
  if (tensor == nullptr || tensor->spec.exempt || !role_may_be_lossy(tensor->spec.role))
    return false;
  const bool narrow_float =
      op.dtype == DType::f32 || op.dtype == DType::f16 || op.dtype == DType::bf16;
  const bool sums = op.reduction == Reduction::sum || op.reduction == Reduction::average;
  return op.kind == shm::OpKind::all_reduce && narrow_float && sums && nodes() > 1 && bytes > 0 &&
         bytes >= group_.lossy_min_bytes && codec::is_lossy(recipe_of(op, *tensor));
}

std::vector<float>& Reference::residual(std::uint64_t tensor, std::uint32_t node,
                                        std::uint64_t count) {
  auto& residual = residuals_[{tensor, node}];
  residual.resize(count, 0.0f);
  return residual;
}

Bytes Reference::sum_local(const Work& work, std::uint32_t node, Part part) const {
  const DType dtype = work.op.dtype;
  const std::size_t offset = part.begin * dtype_bytes(dtype);
  Bytes sum(part.elements * codec::accumulator_bytes(dtype));
  bool first = true;
  for (const std::uint32_t rank : group_.ranks_of_node[node]) {
    const std::byte* input = work.inputs[rank].data() + offset;
    if (first) {
      codec::accumulate_begin({dtype, input, part.elements}, work.op.prescale, sum.data());
    } else {
      codec::accumulate(work.op.reduction, {dtype, input, part.elements}, work.op.prescale,
                        sum.data());
    }
    first = false;
  }
  return sum;
}

Bytes Reference::contribution(const Work& work, std::uint32_t node, Part part) const {
  const Bytes sum = sum_local(work, node, part);
  const Reduction plain =
      work.op.reduction == Reduction::average ? Reduction::sum : work.op.reduction;
  Bytes out(part.elements * dtype_bytes(work.op.dtype));
  codec::accumulate_finish(plain, sum.data(), 1, {work.op.dtype, out.data(), part.elements});
  return out;
}

void Reference::exact_chunk(Work& work, std::uint32_t owner, Part part) const {
  const DType dtype = work.op.dtype;
  Bytes sum = sum_local(work, owner, part);
  for (std::uint32_t step = 1; step < nodes(); ++step) {
    const Bytes other = contribution(work, (owner + step) % nodes(), part);
    codec::accumulate(work.op.reduction, {dtype, other.data(), part.elements}, 1.0f, sum.data());
  }
  codec::accumulate_finish(
      work.op.reduction, sum.data(), group_.size,
      {dtype, work.output.data() + part.begin * dtype_bytes(dtype), part.elements});
}

Bytes Reference::all_reduce(const OpRequest& op, const Tensor* tensor, std::uint64_t sequence,
                            const std::vector<Bytes>& inputs) {
  const std::uint64_t bytes = op.count * dtype_bytes(op.dtype);
  Work work{op, tensor, sequence, inputs, {}, std::vector<float>(nodes(), 0.0f), Bytes(bytes)};
  if (op.count == 0) return work.output;
  const bool floats = op.dtype == DType::f32 || op.dtype == DType::f16 || op.dtype == DType::bf16;
  const bool lossless = tensor != nullptr && floats && nodes() > 1 &&
                        bytes >= group_.lossy_min_bytes &&
                        codec::is_lossless(recipe_of(op, *tensor));
  if (bytes <= group_.eager_bytes) {
    // What builds on blocks before takes two legs, or what is compressed in a group without blocks
    // in announcements.
    const bool lossy = is_lossy(op, tensor);
    const bool compressed = lossless || lossy;
    if (compressed) work.recipe = recipe_of(op, *tensor);
    const bool declared_delta =
        tensor != nullptr && !tensor->spec.recipe.empty() &&
        codec::parse_recipe(tensor->spec.recipe)->compressor == codec::Compressor::xordelta;
    const bool may_be_block =
        group_.eager_blocks && !declared_delta && !codec::needs_shift(work.recipe);
    if (!lossy && (!lossless || may_be_block)) {
      exact_eager_op(work);
      return work.output;
    }
    if (lossy && may_be_block) {
      lossy_eager_op(work);
      return work.output;
    }
  }
  const auto sharding = shm::make_sharding({.tensor = tensor != nullptr ? tensor->id : 0,
                                            .sequence = sequence,
                                            .count = op.count,
                                            .dtype = op.dtype,
                                            .chunk_bytes = group_.chunk_bytes,
                                            .version = group_.cut,
                                            .nodes = nodes(),
                                            .one_lane = tensor != nullptr && tensor->one_lane});
  if (is_lossy(op, tensor)) {
    work.recipe = recipe_of(op, *tensor);
    lossy_op(work, sharding);
    return work.output;
  }
  for (std::uint64_t chunk = 0; chunk < sharding.chunk_count; ++chunk) {
    exact_chunk(
        work, sharding.owner(chunk),
        {sharding.chunk_begin(chunk), static_cast<std::uint32_t>(sharding.chunk_size(chunk))});
  }
  return work.output;
}

// ---- Lossy --------------------------------------------------------------------------------------

bool Reference::encode(Work& work, const Chunk& chunk, const Leg& leg, std::vector<float>& values) {
  const auto& [node, number, part] = chunk;
  Bytes payload(codec::encode_bound(work.recipe, part.elements));
  values.resize(part.elements);
  codec::EncodeRequest request;
  request.input = leg.input;
  if (codec::has_memory(work.recipe)) {
    request.state = residual(work.tensor->id, node, work.op.count).data() + part.begin;
  }
  request.state_scale = leg.state_scale;
  request.delivered = leg.broadcast ? work.op.dtype : DType::f32;
  request.fixed_scale_max = leg.fixed_max;
  request.stream_step = work.sequence;
  std::uint64_t* step = nullptr;
  if (codec::needs_shift(work.recipe)) {
    step = &steps_[{work.tensor->id, node, number}];
    request.stream_step = *step;
    request.alpha = codec::shift_alpha(work.recipe,
                                       shm::most_chunk_elements(group_.chunk_bytes, work.op.dtype));
    request.delivered_out = values.data();
    request.exact =
        *step == 0 && work.recipe.memory == codec::Memory::ef21 && work.op.dtype == DType::f32;
    if (request.exact) payload.resize(std::max(payload.size(), sizeof(float) * part.elements));
  }
  request.key =
      codec::DrawKey{0, work.tensor->id, work.sequence, node, leg.broadcast, number}.mixed();
  request.sparsify = !leg.broadcast || codec::sparsifies_results(work.recipe);
  auto& codebook = codebooks_[{work.tensor->id, node, number}];
  codebook.resize(codec::kCodebookLevels);
  request.codebook = codebook.data();
  wire::BlockHeader header;
  const auto result = codec::encode(work.recipe, request, {payload, header}, workspace_);
  if (result.nonfinite) return false;
  if (step != nullptr) {
    ++*step;
  } else {
    payload.resize(result.payload_bytes);
    TERN_CHECK(codec::decode({header, payload}, values, workspace_) == codec::DecodeStatus::ok);
  }
  return true;
}

Bytes Reference::lossy_sum(Work& work, const Chunk& chunk) {
  const auto& [owner, number, part] = chunk;
  Bytes sum = sum_local(work, owner, part);
  for (std::uint32_t step = 1; step < nodes(); ++step) {
    const std::uint32_t node = (owner + step) % nodes();
    Bytes own = sum_local(work, node, part);
    std::vector<float> values;
    const Leg leg{
        false, {as_floats(own), part.elements}, work.op.state_scale, work.reduce_max[node]};
    if (encode(work, {node, number, part}, leg, values)) {
      for (std::uint32_t i = 0; i < part.elements; ++i) as_floats(sum)[i] += values[i];
    } else {
      const Bytes raw = contribution(work, node, part);
      codec::accumulate(work.op.reduction, {work.op.dtype, raw.data(), part.elements}, 1.0f,
                        sum.data());
    }
  }
  if (work.op.reduction == Reduction::average) {
    codec::accumulate_finish(Reduction::average, sum.data(), group_.size,
                             {DType::f32, sum.data(), part.elements});
  }
  return sum;
}

void Reference::deliver(Work& work, const Chunk& chunk, const Bytes& sum,
                        std::optional<float> parked_max) {
  const DType dtype = work.op.dtype;
  const Part part = chunk.part;
  std::byte* out = work.output.data() + part.begin * dtype_bytes(dtype);
  Bytes input = sum;
  if (parked_max) std::fill(input.begin(), input.end(), std::byte{0});
  const Leg leg{true,
                {as_floats(input), part.elements},
                parked_max ? 1.0f : work.op.state_scale,
                parked_max.value_or(0.0f)};
  std::vector<float> values;
  const bool raw =
      (codec::scans_tensor(work.recipe) && !parked_max) || codec::results_are_raw(work.recipe);
  if (!raw && encode(work, chunk, leg, values)) {
    codec::from_f32(dtype, values.data(), part.elements, out);
  } else {
    codec::accumulate_finish(Reduction::sum, sum.data(), group_.size, {dtype, out, part.elements});
  }
}

// scale=tensor: the largest magnitude of all that a node contributes.
void Reference::scan(Work& work, const shm::Sharding& sharding) {
  for (std::uint64_t chunk = 0; chunk < sharding.chunk_count; ++chunk) {
    const Part part{sharding.chunk_begin(chunk),
                    static_cast<std::uint32_t>(sharding.chunk_size(chunk))};
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      if (node == sharding.owner(chunk)) continue;
      Bytes own = sum_local(work, node, part);
      const float* kept = codec::needs_residual(work.recipe)
                              ? residual(work.tensor->id, node, work.op.count).data() + part.begin
                              : nullptr;
      const auto found =
          codec::scan_max({as_floats(own), part.elements}, kept, work.op.state_scale);
      if (!found.nonfinite) work.reduce_max[node] = std::max(work.reduce_max[node], found.max);
    }
  }
}

void Reference::add_elements(const Work& work, std::uint32_t node, Bytes& sum) const {
  const OpRequest& op = work.op;
  const Bytes one = contribution(work, node, {0, static_cast<std::uint32_t>(op.count)});
  if (node == 0) {
    codec::accumulate_begin({op.dtype, one.data(), op.count}, 1.0f, sum.data());
  } else {
    codec::accumulate(op.reduction, {op.dtype, one.data(), op.count}, 1.0f, sum.data());
  }
}

// One hop: every node adds the announced contributions in the order of nodes.
void Reference::exact_eager_op(Work& work) const {
  const OpRequest& op = work.op;
  Bytes sum(op.count * codec::accumulator_bytes(op.dtype));
  for (std::uint32_t node = 0; node < nodes(); ++node) add_elements(work, node, sum);
  codec::accumulate_finish(op.reduction, sum.data(), group_.size,
                           {op.dtype, work.output.data(), op.count});
}

// The same where contributions are blocks, this node's own too.
void Reference::lossy_eager_op(Work& work) {
  const OpRequest& op = work.op;
  const Part all{0, static_cast<std::uint32_t>(op.count)};
  Bytes sum(op.count * sizeof(float));
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    Bytes own = sum_local(work, node, all);
    float largest = 0.0f;
    if (codec::scans_tensor(work.recipe)) {
      const float* const kept = residual(work.tensor->id, node, op.count).data();
      const auto found = codec::scan_max({as_floats(own), op.count}, kept, op.state_scale);
      if (!found.nonfinite) largest = found.max;
    }
    const Leg leg{false, {as_floats(own), op.count}, op.state_scale, largest};
    std::vector<float> values;
    if (encode(work, {node, 0, all}, leg, values)) {
      for (std::size_t i = 0; i < values.size(); ++i) as_floats(sum)[i] += values[i];
    } else {
      add_elements(work, node, sum);
    }
  }
  codec::accumulate_finish(op.reduction, sum.data(), group_.size,
                           {op.dtype, work.output.data(), op.count});
}

void Reference::lossy_op(Work& work, const shm::Sharding& sharding) {
  const bool whole = codec::scans_tensor(work.recipe);
  if (whole) scan(work, sharding);
  struct Parked {
    Chunk chunk;
    Bytes sum;
  };
  std::vector<Parked> parked;
  std::vector<float> result_max(nodes(), 0.0f);
  for (std::uint64_t number = 0; number < sharding.chunk_count; ++number) {
    const Part part{sharding.chunk_begin(number),
                    static_cast<std::uint32_t>(sharding.chunk_size(number))};
    const std::uint32_t owner = sharding.owner(number);
    const Chunk chunk{owner, number, part};
    Bytes sum = lossy_sum(work, chunk);
    if (!whole) {
      deliver(work, chunk, sum, std::nullopt);
      continue;
    }
    float* kept = residual(work.tensor->id, owner, work.op.count).data() + part.begin;
    const auto found = codec::scan_max({as_floats(sum), part.elements}, kept, work.op.state_scale);
    const float scale = round_to_dtype(work.op.dtype, found.max * work.recipe.s);
    if (found.nonfinite || !std::isfinite(scale)) {
      deliver(work, chunk, sum, std::nullopt);
      continue;
    }
    result_max[owner] = std::max(result_max[owner], found.max);
    for (std::uint32_t i = 0; i < part.elements; ++i) {
      kept[i] = as_floats(sum)[i] + work.op.state_scale * kept[i];
    }
    parked.push_back({chunk, std::move(sum)});
  }
  for (auto& one : parked) {
    deliver(work, one.chunk, one.sum, result_max[one.chunk.node]);
  }
}

}  // namespace tern::sim
