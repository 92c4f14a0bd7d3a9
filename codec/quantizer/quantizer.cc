#include "codec/quantizer/quantizer.h"

#include "base/check.h"
#include "codec/quantizer/implementation.h"

namespace tern::codec::quantizer {
namespace {

const Implementation* find(Kind kind) noexcept {
  switch (kind) {
    case Kind::bf16:
      return &kBf16;
    case Kind::bitmask:
      return &kBitmask;
    case Kind::fp16:
      return &kFp16;
    case Kind::fp8_e4m3:
      return &kFp8E4M3;
    case Kind::fp8_e5m2:
      return &kFp8E5M2;
    case Kind::integer:
      return &kInteger;
    case Kind::lloyd:
      return &kLloyd;
    case Kind::mxfp4:
      return &kMxfp4;
    case Kind::mxfp8_e4m3:
      return &kMxfp8E4M3;
    case Kind::mxfp8_e5m2:
      return &kMxfp8E5M2;
    case Kind::natural:
      return &kNatural;
    case Kind::onebit:
      return &kOnebit;
    case Kind::qsgd:
      return &kQsgd;
    case Kind::raw:
      return &kRaw;
    case Kind::terngrad:
      return &kTerngrad;
    case Kind::threelc:
      break;  // not of this folder: its codes have no fixed length
  }
  return nullptr;
}

const Implementation& implementation(Kind kind) noexcept {
  const Implementation* const found = find(kind);
  TERN_CHECK(found != nullptr);
  return *found;
}

}  // namespace

bool valid(const Params& params) noexcept {
  const bool bits_in = [&] {
    switch (params.kind) {
      case Kind::integer:
        return params.bits >= 2 && params.bits <= 8;
      case Kind::bitmask:
        return params.bits >= 1 && params.bits <= 23;
      case Kind::lloyd:
        return params.bits >= 1 && params.bits <= 6;
      case Kind::bf16:
      case Kind::fp16:
      case Kind::fp8_e4m3:
      case Kind::fp8_e5m2:
      case Kind::mxfp4:
      case Kind::mxfp8_e4m3:
      case Kind::mxfp8_e5m2:
      case Kind::natural:
      case Kind::onebit:
      case Kind::qsgd:
      case Kind::raw:
      case Kind::terngrad:
      case Kind::threelc:
        return params.bits == 0;
    }
    return false;
  }();
  const bool levels_in =
      params.kind == Kind::qsgd ? params.levels >= 1 && params.levels <= 127 : params.levels == 0;
  const bool mx = params.kind == Kind::mxfp8_e4m3 || params.kind == Kind::mxfp8_e5m2 ||
                  params.kind == Kind::mxfp4;
  const bool blocked = params.kind == Kind::fp8_e4m3 || params.kind == Kind::fp8_e5m2 ||
                       params.kind == Kind::integer || params.kind == Kind::qsgd ||
                       params.kind == Kind::terngrad || params.kind == Kind::onebit;
  const bool block_in = mx        ? params.block == 32
                        : blocked ? params.block % wire::kBlockRunElements == 0 &&
                                        params.block <= wire::kMaxBlockElements
                                  : params.block == 0;
  return bits_in && levels_in && block_in && find(params.kind) != nullptr;
}

Sizes sizes(const Params& params, std::size_t elements) noexcept {
  return implementation(params.kind).sizes(params, elements);
}

std::size_t piece_elements(const Params& params) noexcept {
  return implementation(params.kind).piece_elements(params);
}

bool quantize(const Params& params, const Input& input, std::byte* side, std::byte* body) noexcept {
  return implementation(params.kind).quantize(params, input, side, body);
}

bool dequantize(const Params& params, const std::byte* side, const std::byte* body,
                std::span<float> out) noexcept {
  return implementation(params.kind).dequantize(params, side, body, out);
}

double omega(const Params& params, std::size_t elements) noexcept {
  return implementation(params.kind).omega(params, elements);
}

}  // namespace tern::codec::quantizer
