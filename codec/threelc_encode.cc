// The encoder makes two passes over a chunk. The first finds the largest magnitude of each scale
// group and any NaN or infinity; nothing is written before all of it is known to be finite, because
// a residual cannot be restored. The second quantizes, updates the residual, packs and zero-run
// codes while the chunk is still in cache.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "codec/kernels.h"
#include "codec/threelc.h"
#include "codec/threelc_layout.h"

namespace tern::codec {
namespace {

// One chunk on its way through both passes.
struct Encoding {
  const Recipe& recipe;
  const EncodeRequest& request;
  const ThreelcKernels& kernels;
  DigitLayout layout;
  float* residual;
  std::uint32_t scale_count;
  std::byte* scales;
  ZeroRunWriter writer;
  double input_energy = 0.0;
  alignas(64) float residual_lanes[kResidualLanes] = {};
};

// The scale M for a largest magnitude, as bits. False if M or its delivered form is not finite.
bool scale_from_magnitude(const Encoding& encoding, std::uint32_t largest_bits,
                          std::uint32_t& scale_bits) noexcept {
  if (largest_bits >= kInfinityBits) return false;
  const float scale = std::bit_cast<float>(largest_bits) * encoding.recipe.s;
  scale_bits = std::bit_cast<std::uint32_t>(scale);
  return std::isfinite(round_to_dtype(encoding.request.delivered, scale));
}

// Pass 1. False if the chunk must travel raw.
bool find_scales(Encoding& encoding, bool& all_zero) noexcept {
  const std::size_t count = encoding.request.input.size();
  const std::size_t group =
      encoding.recipe.scale_elements == 0 ? count : encoding.recipe.scale_elements;
  alignas(64) float lanes[kScanLanes] = {};
  all_zero = true;
  std::byte* scale_out = encoding.scales;
  for (std::size_t begin = 0; begin < count; begin += group) {
    const std::size_t length = std::min(group, count - begin);
    std::uint32_t largest =
        encoding.kernels.scan({encoding.request.input.data() + begin,
                               encoding.residual == nullptr ? nullptr : encoding.residual + begin,
                               encoding.request.state_scale, length},
                              lanes);
    if (largest >= kInfinityBits) return false;
    if (encoding.recipe.scale_elements == 0) {
      largest = std::bit_cast<std::uint32_t>(encoding.request.fixed_scale_max);
    }
    std::uint32_t scale_bits = 0;
    if (!scale_from_magnitude(encoding, largest, scale_bits)) return false;
    all_zero = all_zero && scale_bits == 0;
    std::memcpy(scale_out, &scale_bits, sizeof(scale_bits));
    scale_out += sizeof(scale_bits);
  }
  for (const float lane : lanes) encoding.input_energy += static_cast<double>(lane);
  return true;
}

// One scale for all, or runs that never straddle two groups: what the vector kernel asks for.
bool runs_have_one_scale(const Encoding& encoding) noexcept {
  return encoding.recipe.layout == Layout::tile || encoding.scale_count == 1;
}

// Up to 64 columns whose five runs lie `run_step` apart: those that do not make a whole digit
// block, or whose runs straddle scale groups. Gathered, quantized in a whole digit block,
// scattered.
class Piece {
 public:
  Piece(Encoding& encoding, std::size_t base, std::size_t columns, std::size_t run_step) noexcept
      : encoding_(encoding), base_(base), columns_(columns), run_step_(run_step) {}

  void encode() noexcept {
    gather();
    alignas(64) std::uint8_t columns[kBlockColumns];
    if (has_one_scale()) {
      quantize_as_block(columns);
    } else {
      quantize_by_element(columns);
    }
    scatter();
    if (encoding_.recipe.pad_digit == 0) set_pad_digits(columns);
    encoding_.writer.append(columns, columns_);
  }

 private:
  std::size_t element(std::size_t run, std::size_t column) const noexcept {
    return base_ + run * run_step_ + column;
  }

  std::size_t run_length(std::size_t run) const noexcept {
    const std::size_t count = encoding_.layout.elements;
    const std::size_t begin = element(run, 0);
    return begin >= count ? 0 : std::min(columns_, count - begin);
  }

  std::size_t group_of(std::size_t index) const noexcept {
    return encoding_.scale_count == 1 ? 0 : index / encoding_.recipe.scale_elements;
  }

  bool has_one_scale() const noexcept {
    const std::size_t last =
        std::min(element(kRunsPerBlock - 1, columns_), encoding_.layout.elements) - 1;
    return group_of(base_) == group_of(last);
  }

  void gather() noexcept {
    std::fill_n(input_, kBlockElements, 0.0f);
    std::fill_n(residual_, kBlockElements, 0.0f);
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      const std::size_t length = run_length(run);
      if (length == 0) continue;
      const std::size_t begin = element(run, 0);
      std::copy_n(encoding_.request.input.data() + begin, length, input_ + run * kRunElements);
      if (encoding_.residual != nullptr) {
        std::copy_n(encoding_.residual + begin, length, residual_ + run * kRunElements);
      }
    }
  }

  void scatter() noexcept {
    if (encoding_.residual == nullptr) return;
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      const std::size_t length = run_length(run);
      if (length == 0) continue;
      std::copy_n(residual_ + run * kRunElements, length, encoding_.residual + element(run, 0));
    }
  }

  void quantize_as_block(std::uint8_t* columns) noexcept {
    quantize_gathered(encoding_.scales + 4 * group_of(base_), columns, encoding_.residual_lanes);
  }

  // Each element as if it had a digit block of its own; rare and small.
  void quantize_by_element(std::uint8_t* columns) noexcept {
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      for (std::size_t column = 0; column < kBlockColumns; ++column) {
        if (run == 0) columns[column] = kZeroColumn;
        if (column >= run_length(run)) continue;
        const float scale = load_f32(encoding_.scales + 4 * group_of(element(run, column)));
        const std::size_t i = run * kRunElements + column;
        const float sum = encoding_.residual == nullptr
                              ? input_[i]
                              : input_[i] + residual_[i] * encoding_.request.state_scale;
        const float threshold = scale * 0.5f;
        const int q = (sum > threshold ? 1 : 0) - (sum < -threshold ? 1 : 0);
        const float delivered = round_to_dtype(encoding_.request.delivered, scale);
        const float left = sum - (q == 0 ? 0.0f : std::copysign(delivered, static_cast<float>(q)));
        residual_[i] = left;
        encoding_.residual_lanes[column] += left * left;
        columns[column] = static_cast<std::uint8_t>(columns[column] + kDigitWeights[run] * q);
      }
    }
  }

  void quantize_gathered(const std::byte* scale, std::uint8_t* columns, float* lanes) noexcept {
    QuantizeBlocks block{};
    block.input = input_;
    block.residual = encoding_.residual == nullptr ? nullptr : residual_;
    block.state_scale = encoding_.request.state_scale;
    block.blocks = 1;
    block.block_step = kBlockElements;
    block.run_step = kRunElements;
    block.scales = scale;
    block.group_runs = 0;
    block.delivered = encoding_.request.delivered;
    ZeroRunWriter plain{columns, 0, false};
    encoding_.kernels.quantize(block, plain, lanes);
  }

  void set_pad_digits(std::uint8_t* columns) const noexcept {
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      for (std::size_t column = run_length(run); column < columns_; ++column) {
        columns[column] = static_cast<std::uint8_t>(columns[column] - kDigitWeights[run]);
      }
    }
  }

  Encoding& encoding_;
  std::size_t base_;
  std::size_t columns_;
  std::size_t run_step_;
  alignas(64) float input_[kBlockElements];
  alignas(64) float residual_[kBlockElements];
};

// Pass 2.
void write_digits(Encoding& encoding) noexcept {
  const DigitLayout& layout = encoding.layout;
  std::size_t next_column = 0;
  if (runs_have_one_scale(encoding)) {
    QuantizeBlocks blocks{};
    blocks.input = encoding.request.input.data();
    blocks.residual = encoding.residual;
    blocks.state_scale = encoding.request.state_scale;
    blocks.blocks = layout.full_blocks;
    blocks.block_step = layout.block_step;
    blocks.run_step = layout.run_step;
    blocks.scales = encoding.scales;
    blocks.group_runs =
        encoding.scale_count == 1 ? 0 : encoding.recipe.scale_elements / kRunElements;
    blocks.delivered = encoding.request.delivered;
    if (blocks.blocks != 0) {
      encoding.kernels.quantize(blocks, encoding.writer, encoding.residual_lanes);
    }
  } else {
    // The paper layout alone: base moves by columns from the first element on.
    while (next_column < layout.full_blocks * kBlockColumns) {
      Piece(encoding, next_column, kBlockColumns, layout.run_step).encode();
      next_column += kBlockColumns;
    }
  }
  for (std::size_t column = 0; column < layout.tail_columns; column += kBlockColumns) {
    const std::size_t columns = std::min(kBlockColumns, layout.tail_columns - column);
    Piece(encoding, layout.tail_base + column, columns, layout.tail_run_step).encode();
  }
  encoding.writer.flush();
}

// A block of zeros still folds a residual that cancels the input.
void fold_residual(Encoding& encoding) noexcept {
  if (encoding.residual == nullptr) return;
  const std::span<const float> input = encoding.request.input;
  for (std::size_t i = 0; i < input.size(); ++i) {
    const float sum = input[i] + encoding.residual[i] * encoding.request.state_scale;
    encoding.residual[i] = std::isfinite(sum) ? sum : 0.0f;
  }
}

// Only an input that changed between the passes can make the residual non-finite, and then it would
// stay so for ever: one bad step of a client must not cost all its later ones.
void heal_residual(Encoding& encoding, double residual_energy) noexcept {
  if (encoding.residual == nullptr || std::isfinite(residual_energy)) return;
  for (std::size_t i = 0; i < encoding.request.input.size(); ++i) {
    if (!std::isfinite(encoding.residual[i])) encoding.residual[i] = 0.0f;
  }
}

std::uint8_t header_flags(const Recipe& recipe, bool all_zero) noexcept {
  unsigned flags = 0;
  if (recipe.layout == Layout::paper) flags |= wire::kBlockPaperLayout;
  if (recipe.pad_digit == 0) flags |= wire::kBlockPadZero;
  if (recipe.zero_run) flags |= wire::kBlockZeroRun;
  if (all_zero) flags |= wire::kBlockAllZero;
  return static_cast<std::uint8_t>(flags);
}

}  // namespace

std::size_t threelc_bound(const Recipe& recipe, std::size_t elements) noexcept {
  const auto count = static_cast<std::uint32_t>(elements);
  return std::size_t{4} * wire::block_scale_count(count, recipe.scale_elements) +
         wire::block_digit_bytes(count);
}

EncodeResult threelc_encode(const Recipe& recipe, const EncodeRequest& request,
                            const BlockRoom& out) noexcept {
  EncodeResult result;
  const auto elements = static_cast<std::uint32_t>(request.input.size());
  const std::uint32_t scale_count = wire::block_scale_count(elements, recipe.scale_elements);
  Encoding encoding{recipe,
                    request,
                    threelc_kernels(),
                    digit_layout(recipe.layout, elements),
                    needs_residual(recipe) ? request.state : nullptr,
                    scale_count,
                    out.payload.data(),
                    {}};
  bool all_zero = true;
  if (!find_scales(encoding, all_zero)) {
    result.nonfinite = true;
    return result;
  }
  if (all_zero) {
    fold_residual(encoding);
  } else {
    auto* const begin = reinterpret_cast<std::uint8_t*>(out.payload.data());
    encoding.writer = {begin + std::size_t{4} * scale_count, 0, recipe.zero_run};
    write_digits(encoding);
    result.payload_bytes = static_cast<std::uint32_t>(encoding.writer.out - begin);
  }
  result.input_energy = encoding.input_energy;
  for (const float lane : encoding.residual_lanes) {
    result.residual_energy += static_cast<double>(lane);
  }
  heal_residual(encoding, result.residual_energy);

  out.header = wire::BlockHeader{};
  out.header.codec = static_cast<std::uint8_t>(wire::CodecId::threelc);
  out.header.dtype = static_cast<std::uint8_t>(DType::f32);
  out.header.flags = header_flags(recipe, all_zero);
  out.header.elements = elements;
  out.header.scale_elements = recipe.scale_elements;
  out.header.payload_bytes = result.payload_bytes;
  out.header.stream_step = request.stream_step;
  return result;
}

}  // namespace tern::codec
