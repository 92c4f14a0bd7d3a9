#include "blocks/contributions.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "codec/accumulate.h"
#include "codec/codec.h"
#include "codec/draw_key.h"
#include "codec/pay_back.h"
#include "wire/block.h"

namespace tern::blocks {
namespace {

bool adds(Reduction reduction) noexcept {
  return reduction == Reduction::sum || reduction == Reduction::average;
}

std::span<std::byte, wire::kBlockHeaderBytes> header_of(std::span<std::byte> slot) noexcept {
  return slot.first<wire::kBlockHeaderBytes>();
}

}  // namespace

Contributions::Contributions(const Layout& layout, const codec::Recipe& recipe)
    : layout_(layout), recipe_(recipe), owes_(layout.chunks()), saved_owes_(layout.chunks()) {
  if (layout.is_tuned() || codec::is_lossy(recipe)) floats_.resize(layout.chunk(0).elements);
  if (codec::has_memory(recipe)) remember();
  // Under the tuner levels begin anew with each block, as the daemon's do.
  if (!layout.is_tuned() && recipe.quantizer.kind == codec::quantizer::Kind::lloyd) {
    codebooks_.resize(layout.chunks() * codec::kCodebookLevels);
  }
  saved_codebooks_ = codebooks_;
}

void Contributions::remember() {
  // In this order: who has a residual has a place to save it, also where memory ends in between.
  saved_.resize(layout_.count());
  residual_.resize(layout_.count());
}

// A tensor that may lose nothing is never told a recipe with a memory.
void Contributions::change_recipe(const codec::Recipe& recipe) {
  recipe_ = recipe;
  if (codec::has_memory(recipe)) remember();
}

template <typename Use>
void Contributions::for_each_contributed(Use use) const {
  for (std::uint64_t number = 0; number < layout_.chunks(); ++number) {
    const Chunk chunk = layout_.chunk(number);
    if (!layout_.owns(chunk)) use(chunk);
  }
}

Lost Contributions::encode(std::span<const std::byte> input, const Terms& terms,
                           std::span<std::byte> slots, codec::Workspace& workspace) {
  TERN_CHECK(slots.size() >= layout_.bytes());
  save();
  Lost lost;
  for (std::uint64_t number = 0; number < layout_.chunks(); ++number) {
    const Chunk chunk = layout_.chunk(number);
    const Job job{chunk,     input.data() + layout_.input_offset(chunk),
                  terms,     slots.subspan(layout_.slot_offset(chunk), layout_.said().slot_bytes),
                  workspace, lost};
    if (layout_.owns(chunk)) {
      copy_elements(job, job.slot.data() + wire::kBlockHeaderBytes);
    } else {
      contribute(job);
    }
  }
  return lost;
}

void Contributions::save() noexcept {
  if (has_residual()) {
    for_each_contributed([this](const Chunk& chunk) {
      std::copy_n(residual_.data() + chunk.begin, chunk.elements, saved_.data() + chunk.begin);
    });
  }
  std::copy(owes_.begin(), owes_.end(), saved_owes_.begin());
  std::copy(codebooks_.begin(), codebooks_.end(), saved_codebooks_.begin());
}

void Contributions::take_back() noexcept {
  if (has_residual()) {
    for_each_contributed([this](const Chunk& chunk) {
      std::copy_n(saved_.data() + chunk.begin, chunk.elements, residual_.data() + chunk.begin);
    });
  }
  std::copy(saved_owes_.begin(), saved_owes_.end(), owes_.begin());
  std::copy(saved_codebooks_.begin(), saved_codebooks_.end(), codebooks_.begin());
}

void Contributions::contribute(const Job& job) {
  const bool sums = adds(job.terms.reduction);
  const bool looks = job.chunk.number / layout_.said().nodes < job.terms.raw_first;
  if (codec::is_lossy(recipe_) && sums && !looks) {
    const Encoded encoded = encode_lossy(job);
    if (encoded == Encoded::block) return;
    if (encoded == Encoded::nonfinite || !layout_.is_tuned()) {
      return write_raw(job, encoded == Encoded::nonfinite);
    }
  }
  // What loses nothing carries what is owed, in plain elements. What two bytes have rounded away
  // follows the scale, too.
  const bool follows = job.terms.state_scale != 1.0f && dtype_bytes(layout_.dtype()) == 2;
  const bool owes = owes_[job.chunk.number] != 0 || (follows && has_residual());
  if (layout_.is_tuned() && sums && owes && pay_back(job)) return;
  if (codec::is_lossless(recipe_) && !looks && encode_lossless(job)) return;
  write_raw(job, false);
}

// As the daemon would encode it, bit for bit (docs/codecs.md).
Contributions::Encoded Contributions::encode_lossy(const Job& job) {
  const std::size_t most = codec::encode_bound(recipe_, job.chunk.elements);
  if (wire::kBlockHeaderBytes + most > layout_.said().most_block_bytes ||
      most > layout_.payload_room()) {
    return Encoded::no_room;
  }
  codec::EncodeRequest request;
  request.input = floats_of(job);
  request.state = has_residual() ? residual_.data() + job.chunk.begin : nullptr;
  request.state_scale = job.terms.state_scale;
  request.stream_step = job.terms.use;
  request.key =
      codec::DrawKey{
          layout_.said().seed, layout_.said().tensor, job.terms.use, layout_.said().node, false,
          job.chunk.number}
          .mixed();
  request.codebook = codebook_of(job.chunk);
  wire::BlockHeader header;
  const auto encoded = codec::encode(
      recipe_, request, {job.slot.subspan(wire::kBlockHeaderBytes), header}, job.workspace);
  if (encoded.nonfinite) return Encoded::nonfinite;
  wire::write_block_header(header, header_of(job.slot));
  owes_[job.chunk.number] = 1;
  job.lost.elements += job.chunk.elements;
  job.lost.energy += encoded.input_energy;
  job.lost.residual_energy += encoded.residual_energy;
  return Encoded::block;
}

bool Contributions::pay_back(const Job& job) {
  const std::span<float> owed = std::span(residual_).subspan(job.chunk.begin, job.chunk.elements);
  const auto values = floats_of(job);
  const std::span<float> paid = std::span(floats_).first(owed.size());
  if (values.data() != paid.data()) std::copy(values.begin(), values.end(), paid.begin());
  const DType type = layout_.dtype();
  if (!codec::pay_back({owed.data(), job.terms.state_scale, type, type}, paid)) return false;
  codec::from_f32(layout_.dtype(), floats_.data(), job.chunk.elements,
                  job.slot.data() + wire::kBlockHeaderBytes);
  write_raw_header(job, false);
  owes_[job.chunk.number] = 0;
  return true;
}

bool Contributions::encode_lossless(const Job& job) {
  codec::Recipe recipe = recipe_;
  recipe.compressor = codec::Compressor::lossless;
  wire::BlockHeader header;
  const std::span<const std::byte> input{job.elements, layout_.input_bytes(job.chunk)};
  if (job.terms.prescale != 1.0f) return false;
  const std::uint32_t payload =
      codec::encode_lossless(recipe, {layout_.dtype(), input, {}, job.terms.use},
                             {job.slot.subspan(wire::kBlockHeaderBytes), header}, job.workspace);
  if (payload == 0) return false;
  wire::write_block_header(header, header_of(job.slot));
  return true;
}

void Contributions::write_raw(const Job& job, bool nonfinite) const {
  copy_elements(job, job.slot.data() + wire::kBlockHeaderBytes);
  write_raw_header(job, nonfinite);
}

void Contributions::write_raw_header(const Job& job, bool nonfinite) const {
  wire::write_block_header(
      codec::raw_block_header(layout_.dtype(), job.chunk.elements, nonfinite, job.terms.use),
      header_of(job.slot));
}

std::span<const float> Contributions::floats_of(const Job& job) {
  const bool lie_there = layout_.dtype() == DType::f32 && job.terms.prescale == 1.0f &&
                         std::bit_cast<std::uintptr_t>(job.elements) % alignof(float) == 0;
  if (lie_there) {
    return {static_cast<const float*>(static_cast<const void*>(job.elements)), job.chunk.elements};
  }
  codec::accumulate_begin({layout_.dtype(), job.elements, job.chunk.elements}, job.terms.prescale,
                          floats_.data());
  return {floats_.data(), job.chunk.elements};
}

void Contributions::copy_elements(const Job& job, std::byte* out) const {
  if (job.terms.prescale == 1.0f) {
    std::memcpy(out, job.elements, layout_.input_bytes(job.chunk));
    return;
  }
  // An accumulator of f32 has the type itself.
  codec::accumulate_begin({layout_.dtype(), job.elements, job.chunk.elements}, job.terms.prescale,
                          out);
}

float* Contributions::codebook_of(const Chunk& chunk) noexcept {
  return codebooks_.empty() ? nullptr : codebooks_.data() + chunk.number * codec::kCodebookLevels;
}

void Contributions::write_residual(std::span<float> elements) const noexcept {
  if (!has_residual()) return;
  for_each_contributed([&](const Chunk& chunk) {
    std::copy_n(residual_.data() + chunk.begin, chunk.elements, elements.data() + chunk.begin);
  });
}

void Contributions::read_residual(std::span<const float> elements) {
  if (layout_.is_tuned()) remember();
  if (!has_residual()) return;
  for_each_contributed([&](const Chunk& chunk) {
    std::copy_n(elements.data() + chunk.begin, chunk.elements, residual_.data() + chunk.begin);
    owes_[chunk.number] = 1;
  });
}

}  // namespace tern::blocks
