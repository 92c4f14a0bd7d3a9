#include "codec/recipe_stages.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace tern::codec {
namespace {

using QuantizerKind = quantizer::Kind;
using SparsifierKind = sparsifier::Kind;
using EntropyKind = entropy::Kind;

constexpr std::string_view kFactors = "a decimal number with 1 <= s < 2, for example 1 or 1.75";
constexpr std::string_view kScales = "tensor, or a multiple of 64 from 64 to 1048576";
constexpr std::string_view kBlocks = "a multiple of 64 from 64 to 1048576";
constexpr std::string_view kShares = "a decimal number, 0 < p <= 1";
constexpr std::string_view kCounts = "a whole number from 1 to 1048576";
constexpr std::string_view kSwitch = "on or off";

template <typename Number>
bool read_whole(std::string_view text, Number& value) noexcept {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && error == std::errc{} && rest == end;
}

bool read_decimal(std::string_view text, float& value) noexcept {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  return !text.empty() && error == std::errc{} && rest == end;
}

std::string shortest(float value) {
  char buffer[64];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  return error == std::errc{} ? std::string(buffer, end) : std::string("?");
}

const char* read_switch(std::string_view text, bool& value) noexcept {
  if (text != "on" && text != "off") return "this is a switch";
  value = text == "on";
  return nullptr;
}

template <typename Number>
const char* read_between(std::string_view text, unsigned least, unsigned most,
                         Number& value) noexcept {
  unsigned parsed = 0;
  if (!read_whole(text, parsed)) return "this is no whole number";
  if (parsed < least || parsed > most) return "this is out of range";
  value = static_cast<Number>(parsed);
  return nullptr;
}

const char* read_block(std::string_view text, std::uint32_t& block) noexcept {
  std::uint32_t parsed = 0;
  if (!read_whole(text, parsed)) return "this is no count of elements";
  if (parsed == 0 || parsed % wire::kBlockRunElements != 0 || parsed > wire::kMaxBlockElements) {
    return "a block is made of whole runs of 64 elements";
  }
  block = parsed;
  return nullptr;
}

std::string unless(bool is_default, std::string text) { return is_default ? "" : std::move(text); }

// ---- Parameters ---------------------------------------------------------------------------------

constexpr StageParam kThreelcParams[] = {
    {"s", kFactors,
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       float parsed = 0;
       if (!read_decimal(text, parsed)) return "this is no number";
       if (!(parsed >= 1.0f && parsed < 2.0f)) return "s must be at least 1 and less than 2";
       r.s = parsed;
       return nullptr;
     },
     [](const Recipe& r) { return shortest(r.s); }},
    {"scale", kScales,
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text == "tensor") {
         r.scale_elements = 0;
         return nullptr;
       }
       std::uint32_t parsed = 0;
       if (!read_whole(text, parsed)) return "this is no count of elements";
       if (parsed == 0 || parsed % wire::kBlockRunElements != 0 ||
           parsed > wire::kMaxBlockElements) {
         return "a scale covers whole runs of 64 elements";
       }
       r.scale_elements = parsed;
       return nullptr;
     },
     [](const Recipe& r) {
       return r.scale_elements == 0 ? std::string("tensor") : std::to_string(r.scale_elements);
     }},
    {"layout", "tile or paper",
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text != "tile" && text != "paper") return "no such layout";
       r.layout = text == "paper" ? Layout::paper : Layout::tile;
       return nullptr;
     },
     [](const Recipe& r) { return unless(r.layout == Layout::tile, "paper"); }},
    {"zrun", kSwitch,
     [](std::string_view text, Recipe& r) noexcept { return read_switch(text, r.zero_run); },
     [](const Recipe& r) { return unless(r.zero_run, "off"); }},
    {"pad", "0 or 1",
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text != "0" && text != "1") return "no such pad digit";
       r.pad_digit = text == "0" ? 0 : 1;
       return nullptr;
     },
     [](const Recipe& r) { return unless(r.pad_digit == 1, "0"); }},
};

constexpr StageParam kFp8Params[] = {
    {"format", "e4m3 or e5m2",
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text != "e4m3" && text != "e5m2") return "no such format";
       r.quantizer.kind = text == "e4m3" ? QuantizerKind::fp8_e4m3 : QuantizerKind::fp8_e5m2;
       return nullptr;
     },
     [](const Recipe& r) {
       return std::string(r.quantizer.kind == QuantizerKind::fp8_e4m3 ? "e4m3" : "e5m2");
     }},
    {"block", kBlocks,
     [](std::string_view text, Recipe& r) noexcept { return read_block(text, r.quantizer.block); },
     [](const Recipe& r) {
       return unless(r.quantizer.block == 4096, std::to_string(r.quantizer.block));
     }},
};

constexpr StageParam kMxfp8Params[] = {
    {"format", "e4m3 or e5m2",
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text != "e4m3" && text != "e5m2") return "no such format";
       r.quantizer.kind = text == "e4m3" ? QuantizerKind::mxfp8_e4m3 : QuantizerKind::mxfp8_e5m2;
       return nullptr;
     },
     [](const Recipe& r) {
       return std::string(r.quantizer.kind == QuantizerKind::mxfp8_e4m3 ? "e4m3" : "e5m2");
     }},
};

constexpr StageParam kIntegerParams[] = {
    {"bits", "a whole number from 2 to 8",
     [](std::string_view text, Recipe& r) noexcept {
       return read_between(text, 2, 8, r.quantizer.bits);
     },
     [](const Recipe& r) { return std::to_string(r.quantizer.bits); }},
    {"block", kBlocks,
     [](std::string_view text, Recipe& r) noexcept { return read_block(text, r.quantizer.block); },
     [](const Recipe& r) {
       return unless(r.quantizer.block == 256, std::to_string(r.quantizer.block));
     }},
    {"round", "nearest or stochastic",
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text != "nearest" && text != "stochastic") return "no such rounding";
       r.quantizer.stochastic = text == "stochastic";
       return nullptr;
     },
     [](const Recipe& r) { return unless(!r.quantizer.stochastic, "stochastic"); }},
};

constexpr StageParam kQsgdParams[] = {
    {"levels", "a whole number from 1 to 127",
     [](std::string_view text, Recipe& r) noexcept {
       return read_between(text, 1, 127, r.quantizer.levels);
     },
     [](const Recipe& r) { return std::to_string(r.quantizer.levels); }},
    {"norm", "2 or inf",
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text != "2" && text != "inf") return "no such norm";
       r.quantizer.two_norm = text == "2";
       return nullptr;
     },
     [](const Recipe& r) { return unless(!r.quantizer.two_norm, "2"); }},
    {"block", kBlocks,
     [](std::string_view text, Recipe& r) noexcept { return read_block(text, r.quantizer.block); },
     [](const Recipe& r) {
       return unless(r.quantizer.block == 256, std::to_string(r.quantizer.block));
     }},
};

constexpr StageParam kTerngradParams[] = {
    {"block", kBlocks,
     [](std::string_view text, Recipe& r) noexcept { return read_block(text, r.quantizer.block); },
     [](const Recipe& r) {
       return unless(r.quantizer.block == 4096, std::to_string(r.quantizer.block));
     }},
    {"clip", "off, or a number of standard deviations from 1 to 100",
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text == "off") {
         r.quantizer.clip = 0.0f;
         return nullptr;
       }
       float parsed = 0;
       if (!read_decimal(text, parsed)) return "this is no number";
       if (!(parsed >= 1.0f && parsed <= 100.0f)) return "this is out of range";
       r.quantizer.clip = parsed;
       return nullptr;
     },
     [](const Recipe& r) { return unless(r.quantizer.clip == 0.0f, shortest(r.quantizer.clip)); }},
};

constexpr StageParam kOnebitParams[] = {
    {"block", kBlocks,
     [](std::string_view text, Recipe& r) noexcept { return read_block(text, r.quantizer.block); },
     [](const Recipe& r) {
       return unless(r.quantizer.block == 4096, std::to_string(r.quantizer.block));
     }},
};

constexpr StageParam kBitmaskParams[] = {
    {"keep", "a whole number of mantissa bits from 1 to 23",
     [](std::string_view text, Recipe& r) noexcept {
       return read_between(text, 1, 23, r.quantizer.bits);
     },
     [](const Recipe& r) { return std::to_string(r.quantizer.bits); }},
    {"round", kSwitch,
     [](std::string_view text, Recipe& r) noexcept {
       return read_switch(text, r.quantizer.rounding);
     },
     [](const Recipe& r) { return unless(r.quantizer.rounding, "off"); }},
};

constexpr StageParam kLloydParams[] = {
    {"bits", "a whole number from 1 to 6",
     [](std::string_view text, Recipe& r) noexcept {
       return read_between(text, 1, 6, r.quantizer.bits);
     },
     [](const Recipe& r) { return std::to_string(r.quantizer.bits); }},
};

const char* read_share(std::string_view text, Recipe& r) noexcept {
  float parsed = 0;
  if (!read_decimal(text, parsed)) return "this is no number";
  if (!(parsed > 0.0f && parsed <= 1.0f)) return "a share is more than 0 and at most 1";
  r.sparsifier.share = parsed;
  r.sparsifier.count = 0;
  return nullptr;
}

std::string print_share(const Recipe& r) {
  return unless(r.sparsifier.count != 0, shortest(r.sparsifier.share));
}

const char* read_count(std::string_view text, Recipe& r) noexcept {
  const char* const problem = read_between(text, 1, wire::kMaxBlockElements, r.sparsifier.count);
  if (problem == nullptr) r.sparsifier.share = 0.0f;
  return problem;
}

std::string print_count(const Recipe& r) {
  return unless(r.sparsifier.count == 0, std::to_string(r.sparsifier.count));
}

constexpr StageParam kTopkParams[] = {
    {"p", kShares, read_share, print_share},
    {"k", kCounts, read_count, print_count},
    {"exact", kSwitch,
     [](std::string_view text, Recipe& r) noexcept {
       return read_switch(text, r.sparsifier.exact);
     },
     [](const Recipe& r) { return unless(!r.sparsifier.exact, "on"); }},
};

constexpr StageParam kRandkParams[] = {
    {"p", kShares, read_share, print_share},
    {"k", kCounts, read_count, print_count},
};

constexpr StageParam kBlocksparseParams[] = {
    {"p", kShares, read_share, print_share},
    {"k", kCounts, read_count, print_count},
    {"block", kCounts,
     [](std::string_view text, Recipe& r) noexcept {
       return read_between(text, 1, wire::kMaxBlockElements, r.sparsifier.block);
     },
     [](const Recipe& r) {
       return unless(r.sparsifier.block == 256, std::to_string(r.sparsifier.block));
     }},
};

constexpr StageParam kHuffmanParams[] = {
    {"book", "the name of a codebook, 1 to 23 of a-z 0-9 _ - .",
     [](std::string_view text, Recipe& r) noexcept -> const char* {
       if (text.empty() || text.size() >= r.entropy.book.size()) return "no name of a codebook";
       r.entropy.kind = EntropyKind::huffman_static;
       r.entropy.book = {};
       std::copy(text.begin(), text.end(), r.entropy.book.begin());
       return nullptr;
     },
     [](const Recipe& r) { return std::string(r.entropy.book.data()); }},
};

// ---- Stages -------------------------------------------------------------------------------------

template <SparsifierKind kind, std::uint32_t block>
void choose_sparsifier(Recipe& r) noexcept {
  r.compressor = Compressor::staged;
  r.sparsifier = {};
  r.sparsifier.kind = kind;
  r.sparsifier.block = block;
  r.sparsifier.share = 0.01f;
}
template <SparsifierKind kind>
bool chosen_sparsifier(const Recipe& r) noexcept {
  return r.sparsifier.kind == kind;
}

// The last two arguments are the defaults of `bits` (or levels) and `block`.
template <QuantizerKind kind, unsigned number = 0, std::uint32_t block = 0>
void choose_quantizer(Recipe& r) noexcept {
  r.compressor = Compressor::staged;
  r.quantizer = {};
  r.quantizer.kind = kind;
  r.quantizer.block = block;
  if (kind == QuantizerKind::qsgd) {
    r.quantizer.levels = number;
  } else {
    r.quantizer.bits = number;
  }
}
template <QuantizerKind kind, QuantizerKind other = kind>
bool chosen_quantizer(const Recipe& r) noexcept {
  return !is_lossless(r) && (r.quantizer.kind == kind || r.quantizer.kind == other);
}

template <EntropyKind kind>
void choose_entropy(Recipe& r) noexcept {
  r.compressor = Compressor::staged;
  r.entropy = {};
  r.entropy.kind = kind;
}
template <EntropyKind kind, EntropyKind other = kind>
bool chosen_entropy(const Recipe& r) noexcept {
  return r.entropy.kind == kind || r.entropy.kind == other;
}

template <Compressor compressor>
void choose_whole(Recipe& r) noexcept {
  r.compressor = compressor;
}
template <Compressor compressor>
bool chosen_whole(const Recipe& r) noexcept {
  return r.compressor == compressor;
}

constexpr std::string_view kThreelcAllowed =
    "s=1..2 (2 excluded), scale=ELEMENTS or scale=tensor, layout=tile|paper, zrun=on|off, pad=0|1";
constexpr auto kSparsifier = StagePlace::sparsifier;
constexpr auto kQuantizer = StagePlace::quantizer;
constexpr auto kEntropy = StagePlace::entropy;
constexpr auto kWhole = StagePlace::whole;
using Q = QuantizerKind;
using S = SparsifierKind;
using E = EntropyKind;

constexpr Stage kStages[] = {
    {"topk", kSparsifier, "p=SHARE or k=COUNT, exact=on|off", kTopkParams,
     choose_sparsifier<S::topk, 1>, chosen_sparsifier<S::topk>},
    {"randk", kSparsifier, "p=SHARE or k=COUNT", kRandkParams, choose_sparsifier<S::randk, 1>,
     chosen_sparsifier<S::randk>},
    {"blocksparse", kSparsifier, "p=SHARE or k=COUNT, block=ELEMENTS", kBlocksparseParams,
     choose_sparsifier<S::blocksparse, 256>, chosen_sparsifier<S::blocksparse>},
    {"raw", kQuantizer, "", {}, choose_quantizer<Q::raw>, chosen_quantizer<Q::raw>},
    {"bf16", kQuantizer, "", {}, choose_quantizer<Q::bf16>, chosen_quantizer<Q::bf16>},
    {"3lc", kQuantizer, kThreelcAllowed, kThreelcParams, choose_quantizer<Q::threelc>,
     chosen_quantizer<Q::threelc>},
    {"fp16", kQuantizer, "", {}, choose_quantizer<Q::fp16>, chosen_quantizer<Q::fp16>},
    {"fp8", kQuantizer, "format=e4m3|e5m2, block=ELEMENTS", kFp8Params,
     choose_quantizer<Q::fp8_e4m3, 0, 4096>, chosen_quantizer<Q::fp8_e4m3, Q::fp8_e5m2>},
    {"mxfp8", kQuantizer, "format=e4m3|e5m2", kMxfp8Params, choose_quantizer<Q::mxfp8_e4m3, 0, 32>,
     chosen_quantizer<Q::mxfp8_e4m3, Q::mxfp8_e5m2>},
    {"mxfp4", kQuantizer, "", {}, choose_quantizer<Q::mxfp4, 0, 32>, chosen_quantizer<Q::mxfp4>},
    {"int", kQuantizer, "bits=2..8, block=ELEMENTS, round=nearest|stochastic", kIntegerParams,
     choose_quantizer<Q::integer, 8, 256>, chosen_quantizer<Q::integer>},
    {"qsgd", kQuantizer, "levels=1..127, norm=2|inf, block=ELEMENTS", kQsgdParams,
     choose_quantizer<Q::qsgd, 4, 256>, chosen_quantizer<Q::qsgd>},
    {"terngrad", kQuantizer, "block=ELEMENTS, clip=DEVIATIONS|off", kTerngradParams,
     choose_quantizer<Q::terngrad, 0, 4096>, chosen_quantizer<Q::terngrad>},
    {"natural", kQuantizer, "", {}, choose_quantizer<Q::natural>, chosen_quantizer<Q::natural>},
    {"onebit", kQuantizer, "block=ELEMENTS", kOnebitParams, choose_quantizer<Q::onebit, 0, 4096>,
     chosen_quantizer<Q::onebit>},
    {"bitmask", kQuantizer, "keep=1..23, round=on|off", kBitmaskParams,
     choose_quantizer<Q::bitmask, 7>, chosen_quantizer<Q::bitmask>},
    {"lloyd", kQuantizer, "bits=1..6", kLloydParams, choose_quantizer<Q::lloyd, 4>,
     chosen_quantizer<Q::lloyd>},
    {"huffman", kEntropy, "book=NAME", kHuffmanParams, choose_entropy<E::huffman>,
     chosen_entropy<E::huffman, E::huffman_static>},
    {"zrun", kEntropy, "", {}, choose_entropy<E::zrun>, chosen_entropy<E::zrun>},
    {"gzip", kEntropy, "", {}, choose_entropy<E::gzip>, chosen_entropy<E::gzip>},
    {"zstd", kEntropy, "", {}, choose_entropy<E::zstd>, chosen_entropy<E::zstd>},
    {"lz4", kEntropy, "", {}, choose_entropy<E::lz4>, chosen_entropy<E::lz4>},
    {"lossless",
     kWhole,
     "",
     {},
     choose_whole<Compressor::lossless>,
     chosen_whole<Compressor::lossless>},
    {"xordelta",
     kWhole,
     "",
     {},
     choose_whole<Compressor::xordelta>,
     chosen_whole<Compressor::xordelta>},
};

}  // namespace

const StageParam kAlphaParam = {
    "alpha", "a decimal number, 0 < alpha <= 1",
    [](std::string_view text, Recipe& r) noexcept -> const char* {
      float parsed = 0;
      if (!read_decimal(text, parsed)) return "this is no number";
      if (!(parsed > 0.0f && parsed <= 1.0f)) return "alpha is more than 0 and at most 1";
      r.alpha = parsed;
      return nullptr;
    },
    [](const Recipe& r) { return unless(r.alpha == 0.0f, shortest(r.alpha)); }};

std::span<const Stage> stages() noexcept { return kStages; }

}  // namespace tern::codec
