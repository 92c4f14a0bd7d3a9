#include "bench/codec_stream.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "codec/draw_key.h"
#include "codec/entropy/codebook.h"
#include "codec/quantizer/quantizer.h"

namespace tern::bench {
namespace {

using codec::Compressor;
using codec::DecodeStatus;

std::size_t slot_size(const StreamOptions& options) {
  const std::size_t plain = sizeof(float) * options.chunk_elements;
  if (codec::is_lossless(options.recipe)) return plain;
  return std::max(plain, codec::encode_bound(options.recipe, options.chunk_elements));
}

}  // namespace

std::optional<std::string> why_unavailable(const codec::Recipe& recipe) {
  const bool staged = recipe.compressor == Compressor::staged || codec::needs_shift(recipe);
  if (staged && recipe.quantizer.kind != codec::quantizer::Kind::threelc &&
      !codec::quantizer::valid(recipe.quantizer)) {
    return "this build does not have its quantizer";
  }
  if (recipe.entropy.kind == codec::entropy::Kind::huffman_static &&
      !codec::entropy::has_codebook(recipe.entropy.book.data())) {
    return "there is no codebook of that name: --codebook FILE, from tern-bench codebook";
  }
  return std::nullopt;
}

CodecStream::CodecStream(const StreamOptions& options)
    : options_(options),
      element_bytes_(dtype_bytes(options.dtype)),
      slot_bytes_(slot_size(options)),
      payload_(slot_bytes_ * chunks()),
      blocks_(chunks()),
      sender_state_(codec::has_memory(options.recipe) ? options.elements : 0, 0.0f),
      reader_state_(codec::needs_shift(options.recipe) ? options.elements : 0, 0.0f),
      reader_steps_(codec::needs_shift(options.recipe) ? chunks() : 0),
      codebooks_(options.recipe.quantizer.kind == codec::quantizer::Kind::lloyd
                     ? chunks() * codec::kCodebookLevels
                     : 0),
      sender_last_(is_delta() ? options.elements * element_bytes_ : 0),
      reader_last_(sender_last_) {}

std::size_t CodecStream::chunks() const {
  return (options_.elements + options_.chunk_elements - 1) / options_.chunk_elements;
}

bool CodecStream::is_delta() const { return options_.recipe.compressor == Compressor::xordelta; }

bool CodecStream::decodes_own_type() const {
  return codec::is_lossless(options_.recipe) || options_.recipe.compressor == Compressor::raw;
}

bool CodecStream::can_add() const { return !is_delta() && !codec::needs_shift(options_.recipe); }

std::size_t CodecStream::sender_state_bytes() const {
  return sender_state_.span().size_bytes() + codebooks_.size() * sizeof(float) +
         sender_last_.size();
}

std::size_t CodecStream::reader_state_bytes() const {
  return reader_state_.span().size_bytes() + reader_steps_.size() * sizeof(std::uint64_t) +
         reader_last_.size();
}

StepResult CodecStream::encode(const ValueView& value) {
  StepResult result;
  if (codec::scans_tensor(options_.recipe)) {
    const float* const residual =
        codec::needs_residual(options_.recipe) ? sender_state_.data() : nullptr;
    tensor_max_ = codec::scan_max(value.floats, residual, 1.0f).max;
  }
  for (std::size_t chunk = 0; chunk < blocks_.size(); ++chunk) {
    const std::size_t begin = chunk * options_.chunk_elements;
    const std::size_t count = std::min(options_.chunk_elements, options_.elements - begin);
    const ValueView part{value.own.subspan(begin * element_bytes_, count * element_bytes_),
                         value.floats.subspan(begin, count)};
    const auto room = std::span(payload_).subspan(chunk * slot_bytes_, slot_bytes_);
    blocks_[chunk] = encode_chunk(chunk, part, room, result);
    result.bytes += wire::kBlockHeaderBytes + blocks_[chunk].payload.size();
  }
  ++step_;
  return result;
}

CodecStream::Block CodecStream::encode_chunk(std::size_t chunk, const ValueView& value,
                                             std::span<std::byte> room, StepResult& result) {
  const std::size_t begin = chunk * options_.chunk_elements;
  if (decodes_own_type()) return encode_own(chunk, value.own, room);
  codec::DrawKey key;
  key.seed = options_.seed;
  key.use = step_;
  key.chunk = chunk;
  codec::EncodeRequest request;
  request.input = value.floats;
  if (codec::has_memory(options_.recipe)) request.state = sender_state_.data() + begin;
  request.fixed_scale_max = tensor_max_;
  request.stream_step = step_;
  request.key = key.mixed();
  request.alpha = codec::shift_alpha(options_.recipe, options_.chunk_elements);
  // EF21 begins with the value itself.
  request.exact = step_ == 0 && options_.recipe.memory == codec::Memory::ef21;
  if (!codebooks_.empty()) request.codebook = codebooks_.data() + chunk * codec::kCodebookLevels;
  Block block;
  const codec::EncodeResult encoded =
      codec::encode(options_.recipe, request, {room, block.header}, workspace_);
  // Inputs were found to be finite; what they add up to, or a scale, may still overflow.
  if (encoded.nonfinite) {
    block.header = codec::raw_block_header(
        DType::f32, static_cast<std::uint32_t>(value.floats.size()), true, step_);
    std::memcpy(room.data(), value.floats.data(), value.floats.size_bytes());
  }
  block.payload = room.first(block.header.payload_bytes);
  result.input_energy += encoded.input_energy;
  result.residual_energy += encoded.residual_energy;
  return block;
}

CodecStream::Block CodecStream::encode_own(std::size_t chunk, std::span<const std::byte> own,
                                           std::span<std::byte> room) {
  Block block;
  std::span<std::byte> last;
  if (is_delta()) {
    last = std::span(sender_last_)
               .subspan(chunk * options_.chunk_elements * element_bytes_, own.size());
  }
  if (!codec::is_lossless(options_.recipe) ||
      codec::encode_lossless(options_.recipe, {options_.dtype, own, last, step_},
                             {room, block.header}, workspace_) == 0) {
    const auto count = static_cast<std::uint32_t>(own.size() / element_bytes_);
    block.header = codec::raw_block_header(options_.dtype, count, false, step_);
    std::memcpy(room.data(), own.data(), own.size());
  }
  block.payload = room.first(block.header.payload_bytes);
  return block;
}

void CodecStream::decode(std::span<std::byte> own, std::span<float> floats) {
  const float alpha = codec::shift_alpha(options_.recipe, options_.chunk_elements);
  for (std::size_t chunk = 0; chunk < blocks_.size(); ++chunk) {
    const auto& [header, payload] = blocks_[chunk];
    const std::size_t begin = chunk * options_.chunk_elements;
    auto status = DecodeStatus::ok;
    if (decodes_own_type()) {
      const auto out = own.subspan(begin * element_bytes_, header.elements * element_bytes_);
      if (header.codec == static_cast<std::uint8_t>(wire::CodecId::raw)) {
        std::memcpy(out.data(), payload.data(), payload.size());
      } else {
        const auto last = is_delta()
                              ? std::span(reader_last_).subspan(begin * element_bytes_, out.size())
                              : std::span<std::byte>{};
        status = codec::decode_lossless({header, payload}, last, out, workspace_);
      }
    } else if (codec::needs_shift(options_.recipe)) {
      codec::ShiftStream shift;
      shift.shift = reader_state_.data() + begin;
      shift.step = &reader_steps_[chunk];
      shift.alpha = alpha;
      status = codec::decode_shifted({header, payload}, shift,
                                     floats.subspan(begin, header.elements), workspace_);
    } else {
      status = codec::decode({header, payload}, floats.subspan(begin, header.elements), workspace_);
    }
    TERN_CHECK(status == DecodeStatus::ok);
  }
}

void CodecStream::decode_add(std::span<float> floats) {
  for (std::size_t chunk = 0; chunk < blocks_.size(); ++chunk) {
    const auto& [header, payload] = blocks_[chunk];
    const auto out = floats.subspan(chunk * options_.chunk_elements, header.elements);
    TERN_CHECK(codec::decode_add({header, payload}, out, workspace_) == DecodeStatus::ok);
  }
}

}  // namespace tern::bench
