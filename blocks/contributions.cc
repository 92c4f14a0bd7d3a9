#include "blocks/contributions.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "codec/accumulate.h"
#include "codec/codec.h"
#include "codec/draw_key.h"
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
    : layout_(layout), recipe_(recipe) {
  if (!codec::is_lossy(recipe)) return;
  floats_.resize(layout.chunk(0).elements);
  if (codec::has_memory(recipe)) residual_.resize(layout.count());
  if (recipe.quantizer.kind == codec::quantizer::Kind::lloyd) {
    codebooks_.resize(layout.chunks() * codec::kCodebookLevels);
  }
  saved_ = residual_;
  saved_codebooks_ = codebooks_;
}

template <typename Use>
void Contributions::for_each_contributed(Use use) const {
  for (std::uint64_t number = 0; number < layout_.chunks(); ++number) {
    const Chunk chunk = layout_.chunk(number);
    if (!layout_.owns(chunk)) use(chunk);
  }
}

void Contributions::encode(std::span<const std::byte> input, const Terms& terms,
                           std::span<std::byte> slots, codec::Workspace& workspace) {
  TERN_CHECK(slots.size() >= layout_.bytes());
  save();
  for (std::uint64_t number = 0; number < layout_.chunks(); ++number) {
    const Chunk chunk = layout_.chunk(number);
    const Job job{chunk, input.data() + layout_.input_offset(chunk), terms,
                  slots.subspan(layout_.slot_offset(chunk), layout_.said().slot_bytes), workspace};
    if (layout_.owns(chunk)) {
      copy_elements(job, job.slot.data() + wire::kBlockHeaderBytes);
    } else {
      contribute(job);
    }
  }
}

void Contributions::save() noexcept {
  if (has_residual()) {
    for_each_contributed([this](const Chunk& chunk) {
      std::copy_n(residual_.data() + chunk.begin, chunk.elements, saved_.data() + chunk.begin);
    });
  }
  std::copy(codebooks_.begin(), codebooks_.end(), saved_codebooks_.begin());
}

void Contributions::take_back() noexcept {
  read_residual(saved_);
  std::copy(saved_codebooks_.begin(), saved_codebooks_.end(), codebooks_.begin());
}

void Contributions::contribute(const Job& job) {
  if (codec::is_lossy(recipe_) && adds(job.terms.reduction)) {
    const Encoded encoded = encode_lossy(job);
    if (encoded == Encoded::block) return;
    return write_raw(job, encoded == Encoded::nonfinite);
  }
  if (codec::is_lossless(recipe_) && encode_lossless(job)) return;
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
  return Encoded::block;
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

void Contributions::read_residual(std::span<const float> elements) noexcept {
  if (!has_residual()) return;
  for_each_contributed([&](const Chunk& chunk) {
    std::copy_n(elements.data() + chunk.begin, chunk.elements, residual_.data() + chunk.begin);
  });
}

}  // namespace tern::blocks
