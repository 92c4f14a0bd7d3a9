#include "daemon/tensor/codec_state.h"

#include <algorithm>
#include <utility>

namespace tern::daemon {
namespace {

bool has_codebooks(const codec::Recipe& recipe) noexcept {
  return recipe.quantizer.kind == codec::quantizer::Kind::lloyd;
}

std::uint64_t chunks_of(const CodecState::Shape& shape) noexcept {
  return (shape.count + shape.chunk_elements - 1) / shape.chunk_elements;
}

}  // namespace

bool CodecState::has_streams(const codec::Recipe& recipe) noexcept {
  return codec::needs_shift(recipe) || recipe.compressor == codec::Compressor::xordelta;
}

float CodecState::alpha_of(const codec::Recipe& recipe, std::uint64_t chunk_elements) noexcept {
  return codec::needs_shift(recipe) ? codec::shift_alpha(recipe, chunk_elements) : 1.0f;
}

std::uint64_t CodecState::bytes_of(const codec::Recipe& recipe, const Shape& shape) noexcept {
  const std::uint64_t element = sizeof(float);
  std::uint64_t bytes = 0;
  if (codec::has_memory(recipe) || has_streams(recipe)) bytes += shape.count * element;
  if (codec::has_memory(recipe) && shape.announced) bytes += shape.count * element;
  // Of every other node this one hears its contributions to the chunks owned here, and its results.
  if (has_streams(recipe)) {
    bytes += 2 * shape.count * element * (shape.nodes - 1) / shape.nodes;
    bytes += chunks_of(shape) * sizeof(std::uint64_t) * shape.nodes;
  }
  if (has_codebooks(recipe)) {
    const std::uint64_t copies = codec::has_memory(recipe) && shape.announced ? 2 : 1;
    bytes += copies * chunks_of(shape) * codec::kCodebookLevels * element;
  }
  return bytes;
}

bool CodecState::allocate(const codec::Recipe& recipe, const Shape& shape) {
  shape_ = shape;
  alpha_ = alpha_of(recipe, shape.chunk_elements);
  bytes_ = bytes_of(recipe, shape);
  const std::uint64_t chunks = chunks_of(shape);
  const std::uint64_t levels = chunks * codec::kCodebookLevels;
  const bool saves = codec::has_memory(recipe) && shape.announced;
  if (codec::has_memory(recipe) || has_streams(recipe)) {
    if (!sender_.allocate(shape.count)) return false;
  }
  if (saves && !saved_.allocate(shape.count)) return false;
  if (has_codebooks(recipe)) {
    if (!codebooks_.allocate(levels)) return false;
    if (saves && !saved_codebooks_.allocate(levels)) return false;
  }
  if (!has_streams(recipe)) return true;
  keeps_ = codec::needs_shift(recipe) ? Keeps::shifts : Keeps::last_bytes;
  if (!sender_steps_.allocate(chunks)) return false;
  received_.resize(shape.nodes);
  receiver_steps_.resize(shape.nodes);
  for (std::uint32_t node = 0; node < shape.nodes; ++node) {
    if (node == shape.self) continue;
    if (!received_[node].allocate(shape.count)) return false;
    if (!receiver_steps_[node].allocate(chunks)) return false;
  }
  return true;
}

bool CodecState::adopt_residual(CodecState& other) noexcept {
  if (shape_ != other.shape_ || has_streams() || other.has_streams()) return false;
  if (other.sender_) sender_ = std::move(other.sender_);
  return true;
}

bool CodecState::free_some() noexcept {
  const auto frees_of = [](Floats& array) {
    if (!array) return false;
    array.free_some();
    return true;
  };
  if (frees_of(sender_) || frees_of(saved_)) return true;
  return std::any_of(received_.begin(), received_.end(), frees_of);
}

void CodecState::save(std::uint64_t use) noexcept {
  if (!saved_) return;
  std::copy_n(sender_.get(), shape_.count, saved_.get());
  const std::uint64_t levels = chunks_of(shape_) * codec::kCodebookLevels;
  if (codebooks_) std::copy_n(codebooks_.get(), levels, saved_codebooks_.get());
  saved_use_ = use;
}

bool CodecState::restore(std::uint64_t use) noexcept {
  if (!saved_ || saved_use_ != use) return false;
  std::copy_n(saved_.get(), shape_.count, sender_.get());
  const std::uint64_t levels = chunks_of(shape_) * codec::kCodebookLevels;
  if (codebooks_) std::copy_n(saved_codebooks_.get(), levels, codebooks_.get());
  return true;
}

}  // namespace tern::daemon
