#include "bench/codebook_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "base/check.h"
#include "bench/codec_options.h"
#include "bench/codec_stream.h"
#include "bench/value_sequence.h"
#include "codec/codes.h"
#include "codec/draw_key.h"
#include "codec/entropy/codebook.h"

namespace tern::bench {
namespace {

using Histogram = std::array<std::uint64_t, 256>;

// The recipe without an entropy coder, which would hide the codes.
codec::Recipe without_entropy(codec::Recipe recipe) {
  recipe.compressor = codec::Compressor::staged;
  recipe.entropy = {};
  return recipe;
}

// Sends all values, as a training would, and counts the bytes of the codes.
Histogram count_codes(const codec::Recipe& recipe, const ValueSequence& values,
                      std::size_t chunk_elements) {
  const std::size_t count = values.count();
  const std::size_t chunks = (count + chunk_elements - 1) / chunk_elements;
  std::vector<float> state(codec::has_memory(recipe) ? count : 0);
  std::vector<float> levels(chunks * codec::kCodebookLevels);
  std::vector<std::byte> payload(
      std::max(sizeof(float) * chunk_elements, codec::encode_bound(recipe, chunk_elements)));
  codec::Workspace workspace;
  Histogram histogram{};
  for (std::size_t step = 0; step < values.steps(); ++step) {
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      const std::size_t begin = chunk * chunk_elements;
      codec::DrawKey key;
      key.use = step;
      key.chunk = chunk;
      codec::EncodeRequest request;
      request.input =
          values.at(step).floats.subspan(begin, std::min(chunk_elements, count - begin));
      if (!state.empty()) request.state = state.data() + begin;
      request.stream_step = step;
      request.key = key.mixed();
      request.alpha = codec::shift_alpha(recipe, chunk_elements);
      request.exact = step == 0 && recipe.memory == codec::Memory::ef21;
      request.codebook = levels.data() + chunk * codec::kCodebookLevels;
      wire::BlockHeader header;
      const auto result = codec::encode(recipe, request, {payload, header}, workspace);
      // The first value of ef21 has no codes.
      const auto quantizer = static_cast<std::uint8_t>(recipe.quantizer.kind);
      if (result.nonfinite || header.stages.quantizer != quantizer) continue;
      const auto block = std::span<const std::byte>(payload).first(result.payload_bytes);
      for (const std::byte code : codec::block_codes(header, block, workspace)) {
        ++histogram[std::to_integer<std::size_t>(code)];
      }
    }
  }
  return histogram;
}

struct Cost {
  double bytes = 0;
  double entropy = 0;  // bits a byte, at best
  double coded = 0;    // with this book
};

Cost cost_of(const Histogram& histogram, const codec::entropy::Codebook& book) {
  Cost cost;
  for (const std::uint64_t seen : histogram) cost.bytes += static_cast<double>(seen);
  for (std::size_t symbol = 0; symbol < histogram.size(); ++symbol) {
    if (histogram[symbol] == 0) continue;
    const double share = static_cast<double>(histogram[symbol]) / cost.bytes;
    cost.entropy -= share * std::log2(share);
    cost.coded += share * book.lengths[symbol];
  }
  return cost;
}

}  // namespace

void train_codebook_file(const CodebookOptions& options) {
  const codec::Recipe asked = value_or_exit(codec::parse_recipe(options.recipe));
  const codec::Recipe recipe = without_entropy(asked);
  if (codec::is_lossless(asked)) give_up(options.recipe + " has no codes of a quantizer");
  if (const auto why = why_unavailable(recipe)) give_up(options.recipe + ": " + *why);
  const ValueSequence values(options.inputs, options.dtype);
  const Histogram histogram = count_codes(recipe, values, options.chunk_kib << 8);
  const codec::entropy::Codebook book = codec::entropy::train_codebook(options.name, histogram);
  const std::string text = codec::entropy::codebook_text(book);
  // What cannot be read back, such as a name with blanks, is not worth writing.
  value_or_exit(codec::entropy::parse_codebook(text));
  std::ofstream file(options.out);
  file << text;
  file.close();
  if (!file) give_up(options.out + " cannot be written");
  const Cost cost = cost_of(histogram, book);
  if (cost.bytes == 0) give_up("these tensors have no codes to learn from");
  fmt::print("{}: {} from {:.0f} bytes of codes; {:.3f} bits a byte, entropy {:.3f}\n", options.out,
             book.name, cost.bytes, cost.coded, cost.entropy);
}

}  // namespace tern::bench
