#include <algorithm>
#include <array>
#include <cstring>

#include "codec/memory_kernels.h"
#include "codec/staged.h"
#include "codec/threelc.h"

namespace tern::codec {
namespace {

class Decoding {
 public:
  Decoding(const BlockView& block, bool add, Workspace& workspace) noexcept
      : header_(block.header), payload_(block.payload), add_(add), workspace_(workspace) {}

  DecodeStatus run(std::span<float> out) noexcept {
    body_.kept = out.size();
    if (const auto status = read_section(out.size()); status != DecodeStatus::ok) return status;
    if (!read_params()) return DecodeStatus::bad_header;
    if (const auto status = find_codes(); status != DecodeStatus::ok) return status;
    if (!sparse_ && !add_) return dequantize(out);
    if (!sparse_ && !threelc_) return add_pieces(out);
    const std::span<float> values{workspace_.kept().data(), body_.kept};
    if (const auto status = dequantize(values); status != DecodeStatus::ok) return status;
    if (!sparse_) {
      memory_kernels().add(out.data(), values.data(), values.size());
    } else {
      scatter(values, out);
    }
    return DecodeStatus::ok;
  }

 private:
  DecodeStatus read_section(std::size_t elements) noexcept {
    const auto kind = static_cast<sparsifier::Kind>(header_.stages.sparsifier);
    sparse_ = kind != sparsifier::Kind::none;
    if (!sparse_) return DecodeStatus::ok;
    sparsifier::Selection selection;
    if (!sparsifier::read_section({kind, payload_, elements}, workspace_.positions().data(),
                                  selection)) {
      return DecodeStatus::bad_section;
    }
    body_.kept = selection.kept;
    payload_ = payload_.subspan(selection.section_bytes);
    return DecodeStatus::ok;
  }

  // False: no writer has such parameters. The quantizers need not expect them.
  bool read_params() noexcept {
    quantizer::Params& params = body_.params;
    params.kind = static_cast<quantizer::Kind>(header_.stages.quantizer);
    params.bits = header_.stages.bits;
    params.levels = header_.stages.levels;
    params.block = header_.scale_elements;
    threelc_ = params.kind == quantizer::Kind::threelc;
    if (threelc_) return params.bits == 0 && params.levels == 0;
    return quantizer::valid(params);
  }

  DecodeStatus find_codes() noexcept {
    if (threelc_) {
      std::uint32_t length = 0;
      if (payload_.size() < sizeof(length)) return DecodeStatus::wrong_payload_bytes;
      std::memcpy(&length, payload_.data(), sizeof(length));
      payload_ = payload_.subspan(sizeof(length));
      if (length > body_.kept + sizeof(float)) return DecodeStatus::wrong_payload_bytes;
      body_.sizes = {0, length};
    } else {
      body_.sizes = quantizer::sizes(body_.params, body_.kept);
    }
    if (payload_.size() < body_.sizes.side) return DecodeStatus::wrong_payload_bytes;
    side_ = payload_.data();
    payload_ = payload_.subspan(body_.sizes.side);
    const auto kind = static_cast<entropy::Kind>(header_.stages.entropy);
    const bool stored = (header_.flags & wire::kBlockEntropyStored) != 0;
    if (stored && kind == entropy::Kind::none) return DecodeStatus::bad_header;
    if (stored || kind == entropy::Kind::none) {
      if (payload_.size() != body_.sizes.body) return DecodeStatus::wrong_payload_bytes;
      codes_ = payload_.data();
      return DecodeStatus::ok;
    }
    std::byte* const codes = workspace_.bytes().data();
    codes_ = codes;
    switch (entropy::decode(kind, payload_, {codes, body_.sizes.body}, workspace_.entropy())) {
      case entropy::Status::ok:
        return DecodeStatus::ok;
      case entropy::Status::corrupt:
        return DecodeStatus::bad_codes;
      case entropy::Status::unknown_book:
        return DecodeStatus::unknown_codebook;
    }
    return DecodeStatus::bad_codes;
  }

  DecodeStatus dequantize(std::span<float> out) noexcept {
    if (threelc_) return read_threelc(out);
    const bool sound = for_each_piece(body_, side_, codes_,
                                      [&](std::size_t begin, std::size_t count,
                                          const std::byte* side, const std::byte* body) noexcept {
                                        return quantizer::dequantize(body_.params, side, body,
                                                                     out.subspan(begin, count));
                                      });
    return sound ? DecodeStatus::ok : DecodeStatus::bad_scale;
  }

  DecodeStatus add_pieces(std::span<float> accumulator) noexcept {
    float* const values = workspace_.kept().data();
    const bool sound =
        for_each_piece(body_, side_, codes_,
                       [&](std::size_t begin, std::size_t count, const std::byte* side,
                           const std::byte* body) noexcept {
                         if (!quantizer::dequantize(body_.params, side, body, {values, count}))
                           return false;
                         memory_kernels().add(accumulator.data() + begin, values, count);
                         return true;
                       });
    return sound ? DecodeStatus::ok : DecodeStatus::bad_scale;
  }

  DecodeStatus read_threelc(std::span<float> out) noexcept {
    wire::BlockHeader stage;
    stage.codec = static_cast<std::uint8_t>(wire::CodecId::threelc);
    stage.flags = header_.flags & static_cast<std::uint8_t>(~wire::kBlockEntropyStored);
    stage.elements = static_cast<std::uint32_t>(body_.kept);
    stage.scale_elements = header_.scale_elements;
    stage.payload_bytes = static_cast<std::uint32_t>(body_.sizes.body);
    if (wire::check_block_header(stage) != wire::BlockError::none) return DecodeStatus::bad_header;
    return threelc_decode({stage, {codes_, body_.sizes.body}}, out, false);
  }

  void scatter(std::span<const float> values, std::span<float> out) const noexcept {
    const std::uint32_t* const positions = workspace_.positions().data();
    if (add_) {
      for (std::size_t i = 0; i < values.size(); ++i) out[positions[i]] += values[i];
      return;
    }
    std::fill(out.begin(), out.end(), 0.0f);
    for (std::size_t i = 0; i < values.size(); ++i) out[positions[i]] = values[i];
  }

  const wire::BlockHeader& header_;
  std::span<const std::byte> payload_;
  bool add_;
  Workspace& workspace_;
  bool sparse_ = false;
  bool threelc_ = false;
  StagedBody body_;
  const std::byte* side_ = nullptr;
  const std::byte* codes_ = nullptr;
};

}  // namespace

DecodeStatus staged_decode(const BlockView& block, std::span<float> out, bool add,
                           Workspace& workspace) noexcept {
  return Decoding(block, add, workspace).run(out);
}

}  // namespace tern::codec
