#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/random.h"
#include "codec/kernels.h"
#include "codec/memory_kernels.h"
#include "codec/staged.h"
#include "codec/threelc.h"

namespace tern::codec {
namespace {

constexpr std::size_t kLengthBytes = 4;

bool is_threelc(const Recipe& recipe) noexcept {
  return recipe.quantizer.kind == quantizer::Kind::threelc;
}

// 3lc alone, as a stage: it forgets nothing and remembers nothing.
Recipe threelc_stage(const Recipe& recipe) noexcept {
  Recipe stage = recipe;
  stage.memory = Memory::none;
  stage.compressor = Compressor::threelc;
  return stage;
}

class Encoding {
 public:
  Encoding(const Recipe& recipe, const EncodeRequest& request, std::span<std::byte> payload,
           Workspace& workspace) noexcept
      : recipe_(recipe),
        request_(request),
        payload_(payload),
        workspace_(workspace),
        count_(request.input.size()),
        sums_(workspace.sums().data()),
        sparse_(request.sparsify && recipe.sparsifier.kind != sparsifier::Kind::none) {
    if (request.codebook != nullptr) std::copy_n(request.codebook, kCodebookLevels, codebook_);
  }

  EncodeResult run(wire::BlockHeader& header_out) noexcept {
    if (!(in_pieces() ? encode_pieces() : encode_whole(header_out))) {
      EncodeResult result;
      result.nonfinite = true;
      header_out = {};
      return result;
    }
    in_pieces() ? remember_pieces() : remember();
    if (request_.codebook != nullptr) std::copy_n(codebook_, kCodebookLevels, request_.codebook);
    finish_header(header_out);
    EncodeResult result;
    result.payload_bytes = static_cast<std::uint32_t>(used_);
    for (const float lane : input_lanes_) result.input_energy += static_cast<double>(lane);
    for (const float lane : left_lanes_) result.residual_energy += static_cast<double>(lane);
    return result;
  }

 private:
  bool encode_whole(wire::BlockHeader& header) noexcept {
    return sum() && choose() && write_codes(header) && decode();
  }

  bool in_pieces() const noexcept {
    return !sparse_ && !needs_shift(recipe_) && !is_threelc(recipe_) &&
           request_.delivered == DType::f32 && quantizer::piece_elements(recipe_.quantizer) != 0;
  }

  // Memory works while a piece is computed: a quarter of the next one is asked for before each
  // step, because more at once would have to wait. Past the end it is a hint that does nothing.
  void fetch_quarter(std::size_t begin, std::size_t count, std::size_t quarter) const noexcept {
    constexpr std::size_t kLine = 16;
    const std::size_t part = count / 4;
    const std::size_t first = begin + quarter * part;
    for (std::size_t i = first; i < first + part; i += kLine) {
      __builtin_prefetch(request_.input.data() + i, 0, 2);
      __builtin_prefetch(request_.state + i, 0, 2);
    }
  }

  // All steps on one piece, which stays in the first-level cache, while memory fetches the next
  // one. The state must not change before all sums are known to be finite: until then what is left
  // of them is kept in sums_.
  bool encode_pieces() noexcept {
    body_.params = recipe_.quantizer;
    body_.kept = count_;
    const bool coded = recipe_.entropy.kind != entropy::Kind::none;
    place_codes(coded);
    const bool with_state = needs_residual(recipe_);
    float* const sums = workspace_.kept().data();
    float* const seen = workspace_.decoded().data();
    const bool fits = for_each_piece(
        body_, side_, codes_,
        [&](std::size_t begin, std::size_t count, std::byte* side, std::byte* body) noexcept {
          const float* const state = with_state ? request_.state + begin : nullptr;
          if (with_state) fetch_quarter(begin + count, count, 0);
          const std::uint32_t largest = memory_kernels().compensate(
              {request_.input.data() + begin, state, request_.state_scale, count}, sums,
              input_lanes_);
          if (largest >= kInfinityBits) return false;
          if (with_state) fetch_quarter(begin + count, count, 1);
          if (!quantize({sums, count}, begin, side, body)) return false;
          if (with_state) fetch_quarter(begin + count, count, 2);
          TERN_CHECK(quantizer::dequantize(body_.params, side, body, {seen, count}));
          if (with_state) fetch_quarter(begin + count, count, 3);
          float* const left = with_state ? sums_ + begin : sums;
          memory_kernels().leave({sums, count}, seen, left, left_lanes_);
          return true;
        });
    if (fits) finish_codes(coded);
    return fits;
  }

  // What is to be sent, in memory that nobody else can write to.
  bool sum() noexcept {
    const float* const state = has_memory(recipe_) ? request_.state : nullptr;
    const float scale = needs_shift(recipe_) ? -request_.state_scale : request_.state_scale;
    const std::uint32_t largest = memory_kernels().compensate(
        {request_.input.data(), state, scale, count_}, sums_, input_lanes_);
    return largest < kInfinityBits;
  }

  bool choose() noexcept {
    exact_ = request_.exact && needs_shift(recipe_);
    TERN_CHECK(!exact_ || payload_.size() >= sizeof(float) * count_);
    sparse_ = sparse_ && !exact_;
    body_.params = exact_ ? quantizer::Params{} : recipe_.quantizer;
    body_.kept = count_;
    values_ = sums_;
    if (!sparse_) return true;
    const bool unbiased = recipe_.memory == Memory::none || recipe_.memory == Memory::diana;
    sparsifier::Request request{recipe_.sparsifier, {sums_, count_}};
    request.key = mixed_key(request_.key, 1);
    request.unbiased = unbiased;
    request.section = payload_.data();
    request.kept = workspace_.kept().data();
    request.positions = workspace_.positions().data();
    const auto selection = sparsifier::select(request);
    body_.kept = selection.kept;
    used_ = selection.section_bytes;
    values_ = workspace_.kept().data();
    // Multiplied by the inverse of a probability, a large value may overflow.
    for (std::size_t i = 0; i < body_.kept; ++i) {
      if (magnitude_bits(values_[i]) >= kInfinityBits) return false;
    }
    // What the reader draws from the key, for the passes below.
    sparsifier::Selection again;
    return sparsifier::read_section({recipe_.sparsifier.kind, {payload_.data(), used_}, count_},
                                    request.positions, again);
  }

  bool write_codes(wire::BlockHeader& header) noexcept {
    const bool coded = recipe_.entropy.kind != entropy::Kind::none && !exact_;
    if (!exact_ && is_threelc(recipe_)) return write_threelc(header, coded);
    place_codes(coded);
    const bool fits = for_each_piece(
        body_, side_, codes_,
        [&](std::size_t begin, std::size_t count, std::byte* side, std::byte* body) noexcept {
          return quantize({values_ + begin, count}, begin, side, body);
        });
    if (fits) finish_codes(coded);
    return fits;
  }

  void place_codes(bool coded) noexcept {
    body_.sizes = quantizer::sizes(body_.params, body_.kept);
    side_ = payload_.data() + used_;
    used_ += body_.sizes.side;
    codes_ = coded ? workspace_.bytes().data() : payload_.data() + used_;
  }

  bool quantize(std::span<const float> values, std::size_t begin, std::byte* side,
                std::byte* body) noexcept {
    quantizer::Input input;
    input.values = values;
    input.key = request_.key;
    input.position = static_cast<std::uint32_t>(begin);
    input.contractive = recipe_.memory == Memory::ef || recipe_.memory == Memory::ef21;
    input.codebook = request_.codebook != nullptr ? codebook_ : nullptr;
    return quantizer::quantize(body_.params, input, side, body);
  }

  void finish_codes(bool coded) noexcept {
    if (coded) {
      code_body();
    } else {
      used_ += body_.sizes.body;
    }
  }

  bool write_threelc(wire::BlockHeader& header, bool coded) noexcept {
    std::byte* const length = payload_.data() + used_;
    used_ += kLengthBytes;
    codes_ = coded ? workspace_.bytes().data() : payload_.data() + used_;
    EncodeRequest request;
    request.input = {values_, body_.kept};
    const Recipe stage = threelc_stage(recipe_);
    const std::span<std::byte> room{codes_, threelc_bound(stage, body_.kept)};
    const EncodeResult result = threelc_encode(stage, request, {room, threelc_header_});
    if (result.nonfinite) return false;
    header.flags = threelc_header_.flags;
    body_.sizes = {0, result.payload_bytes};
    std::memcpy(length, &result.payload_bytes, kLengthBytes);
    finish_codes(coded);
    return true;
  }

  void code_body() noexcept {
    const std::span<const std::byte> codes{codes_, body_.sizes.body};
    std::byte* const out = payload_.data() + used_;
    std::size_t bytes = 0;
    if (codes.size() > 1) {
      bytes =
          entropy::encode(recipe_.entropy, codes, {out, codes.size() - 1}, workspace_.entropy());
    }
    stored_ = bytes == 0;
    if (stored_) {
      if (!codes.empty()) std::memcpy(out, codes.data(), codes.size());
      bytes = codes.size();
    }
    used_ += bytes;
  }

  // What the reader will see of the values, from the bytes that it will get.
  bool decode() noexcept {
    float* const seen = sparse_ ? workspace_.kept().data() : workspace_.decoded().data();
    return dequantize(seen) && fits_delivered({seen, body_.kept});
  }

  // An infinity in the type in which it is delivered would stay in the residual for ever.
  bool fits_delivered(std::span<const float> seen) const noexcept {
    if (request_.delivered == DType::f32 || needs_shift(recipe_)) return true;
    return std::all_of(seen.begin(), seen.end(), [this](float value) {
      return magnitude_bits(round_to_dtype(request_.delivered, value)) < kInfinityBits;
    });
  }

  bool dequantize(float* seen) noexcept {
    if (!exact_ && is_threelc(recipe_)) {
      return threelc_decode({threelc_header_, {codes_, body_.sizes.body}}, {seen, body_.kept},
                            false) == DecodeStatus::ok;
    }
    const std::byte* const side = side_;
    const std::byte* const codes = codes_;
    return for_each_piece(
        body_, side, codes,
        [&](std::size_t begin, std::size_t count, const std::byte* piece_side,
            const std::byte* piece) noexcept {
          return quantizer::dequantize(body_.params, piece_side, piece, {seen + begin, count});
        });
  }

  void remember_pieces() noexcept {
    if (needs_residual(recipe_)) std::copy_n(sums_, count_, request_.state);
  }

  void remember() noexcept {
    if (needs_shift(recipe_)) return remember_shift();
    float* const left = needs_residual(recipe_) ? request_.state : nullptr;
    if (sparse_) {
      // What was dropped is left as it is, and a pass over zeros is spared.
      float* const kept = workspace_.kept().data();
      const std::uint32_t* const positions = workspace_.positions().data();
      if (request_.delivered != DType::f32) round_as_delivered(kept, body_.kept);
      for (std::size_t i = 0; i < body_.kept; ++i) sums_[positions[i]] -= kept[i];
      memory_kernels().keep({sums_, count_}, left, left_lanes_);
      return;
    }
    float* const dense = workspace_.decoded().data();
    if (request_.delivered != DType::f32) round_as_delivered(dense, count_);
    memory_kernels().leave({sums_, count_}, dense, left != nullptr ? left : sums_, left_lanes_);
  }

  void remember_shift() noexcept {
    float* const dense = workspace_.decoded().data();
    if (sparse_) {
      const float* const kept = workspace_.kept().data();
      const std::uint32_t* const positions = workspace_.positions().data();
      std::fill_n(dense, count_, 0.0f);
      for (std::size_t i = 0; i < body_.kept; ++i) dense[positions[i]] = kept[i];
    }
    memory_kernels().leave({sums_, count_}, dense, sums_, left_lanes_);
    float* const out = request_.delivered_out != nullptr ? request_.delivered_out : sums_;
    memory_kernels().advance({request_.state_scale, request_.alpha}, request_.state,
                             {dense, count_}, out);
  }

  void round_as_delivered(float* values, std::size_t all) noexcept {
    const ConvertKernels& kernels = convert_kernels();
    alignas(64) std::byte narrow[2 * kPieceElements];
    for (std::size_t begin = 0; begin < all; begin += kPieceElements) {
      const std::size_t count = std::min(kPieceElements, all - begin);
      if (request_.delivered == DType::f16) {
        kernels.f32_to_f16(values + begin, count, narrow);
        kernels.f16_to_f32(narrow, count, values + begin);
      } else {
        kernels.f32_to_bf16(values + begin, count, narrow);
        kernels.bf16_to_f32(narrow, count, values + begin);
      }
    }
  }

  void finish_header(wire::BlockHeader& header) noexcept {
    header.codec = static_cast<std::uint8_t>(wire::CodecId::staged);
    header.dtype = static_cast<std::uint8_t>(DType::f32);
    if (stored_) header.flags |= wire::kBlockEntropyStored;
    header.elements = static_cast<std::uint32_t>(count_);
    header.payload_bytes = static_cast<std::uint32_t>(used_);
    header.stream_step = request_.stream_step;
    const bool threelc = !exact_ && is_threelc(recipe_);
    header.scale_elements = threelc ? recipe_.scale_elements : body_.params.block;
    header.stages.sparsifier =
        sparse_ ? static_cast<std::uint8_t>(recipe_.sparsifier.kind) : std::uint8_t{0};
    header.stages.quantizer = static_cast<std::uint8_t>(body_.params.kind);
    header.stages.entropy =
        exact_ ? std::uint8_t{0} : static_cast<std::uint8_t>(recipe_.entropy.kind);
    header.stages.bits = body_.params.bits;
    header.stages.levels = body_.params.levels;
  }

  const Recipe& recipe_;
  const EncodeRequest& request_;
  std::span<std::byte> payload_;
  Workspace& workspace_;
  std::size_t count_;
  float* sums_;
  bool sparse_;
  bool exact_ = false;  // the values as they are
  bool stored_ = false;
  const float* values_ = nullptr;
  StagedBody body_;
  std::byte* side_ = nullptr;
  std::byte* codes_ = nullptr;
  std::size_t used_ = 0;
  wire::BlockHeader threelc_header_;
  // Trained here, because what the codes stand for may yet not fit what is delivered.
  float codebook_[kCodebookLevels] = {};
  alignas(64) float input_lanes_[kScanLanes] = {};
  alignas(64) float left_lanes_[kResidualLanes] = {};
};

}  // namespace

std::size_t staged_bound(const Recipe& recipe, std::size_t elements) noexcept {
  const bool sparse = recipe.sparsifier.kind != sparsifier::Kind::none;
  std::size_t bound = sparse ? sparsifier::section_bound(recipe.sparsifier, elements) : 0;
  const std::size_t kept = sparse ? sparsifier::kept_bound(recipe.sparsifier, elements) : elements;
  if (is_threelc(recipe)) return bound + kLengthBytes + threelc_bound(recipe, kept);
  quantizer::Sizes sizes = quantizer::sizes(recipe.quantizer, kept);
  bound += sizes.side + sizes.body;
  if (!sparse || sparsifies_results(recipe) || results_are_raw(recipe)) return bound;
  sizes = quantizer::sizes(recipe.quantizer, elements);
  return std::max(bound, sizes.side + sizes.body);
}

EncodeResult staged_encode(const Recipe& recipe, const EncodeRequest& request, const BlockRoom& out,
                           Workspace& workspace) noexcept {
  return Encoding(recipe, request, out.payload, workspace).run(out.header);
}

}  // namespace tern::codec
