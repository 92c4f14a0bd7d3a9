// A foreign block: parse its header, decode it on every target. All targets must agree on the
// status and, if it is ok, on the bits; the sanitizers see to it that nobody leaves a span.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/target/target.h"
#include "fuzz_input.h"
#include "tests/codec/golden_book.h"

using namespace tern;

namespace {

// All that a reader may do with a block.
struct Outcome {
  codec::DecodeStatus decoded, added, added_first, shifted, lossless;
  std::vector<float> values, sums, first_sums, deltas, shift;
  std::vector<std::byte> elements, last;
};

Outcome decode_with(std::string_view target, const wire::BlockHeader& header,
                    std::span<const std::byte> payload) {
  TERN_CHECK(codec::target::force(target));
  const std::size_t count = header.elements;
  const std::size_t native = count * dtype_bytes(static_cast<DType>(header.dtype));
  Outcome one;
  one.values.assign(count, 1.0f);
  // Each another one, so that a wrong place is found.
  std::vector<float> own(count);
  std::iota(own.begin(), own.end(), -1.0f);
  one.sums = own;
  one.first_sums.assign(count, 2.0f);
  one.deltas.assign(count, 1.0f);
  one.shift.assign(count, 0.5f);
  one.elements.assign(native, std::byte{0});
  one.last.assign(native, std::byte{1});
  one.decoded = codec::decode({header, payload}, one.values, fuzz::workspace());
  one.added = codec::decode_add({header, payload}, one.sums, fuzz::workspace());
  one.added_first = codec::decode_add_first({header, payload}, std::as_bytes(std::span(own)).data(),
                                            one.first_sums, fuzz::workspace());
  std::uint64_t step = header.stream_step;
  const codec::ShiftStream stream{one.shift.data(), &step, 0.25f, 1.0f};
  one.shifted = codec::decode_shifted({header, payload}, stream, one.deltas, fuzz::workspace());
  one.lossless =
      codec::decode_lossless({header, payload}, one.last, one.elements, fuzz::workspace());
  return one;
}

// Where one is a NaN the other must be one too; which NaN survives an addition is the compiler's
// choice, and raw payloads may hold any.
bool same_sums(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return true;
}

bool install_book() {
  return codec::entropy::install_codebooks({codec::golden_book()}).has_value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool kHasBook = install_book();
  TERN_CHECK(kHasBook);
  const auto bytes = std::as_bytes(std::span(data, size));
  wire::BlockHeader header;
  if (wire::parse_block_header(bytes, header) != wire::BlockError::none) return 0;
  // Of its own length, so that one byte read too far is found.
  const auto rest = bytes.subspan(wire::kBlockHeaderBytes);
  const std::vector<std::byte> payload(rest.begin(), rest.end());
  const Outcome first = decode_with(codec::target::supported().front(), header, payload);
  TERN_CHECK(first.added == first.decoded && first.added_first == first.decoded);
  for (const std::string_view target : codec::target::supported().subspan(1)) {
    const Outcome other = decode_with(target, header, payload);
    TERN_CHECK(other.decoded == first.decoded && other.added == first.added);
    TERN_CHECK(other.added_first == first.added);
    TERN_CHECK(other.shifted == first.shifted && other.lossless == first.lossless);
    if (first.decoded == codec::DecodeStatus::ok) {
      TERN_CHECK(first.values.empty() || std::memcmp(other.values.data(), first.values.data(),
                                                     4 * first.values.size()) == 0);
      TERN_CHECK(same_sums(other.sums, first.sums));
      TERN_CHECK(same_sums(other.first_sums, first.sums));
    }
    if (first.shifted == codec::DecodeStatus::ok) {
      TERN_CHECK(same_sums(other.deltas, first.deltas) && same_sums(other.shift, first.shift));
    }
    if (first.lossless == codec::DecodeStatus::ok) {
      TERN_CHECK(other.elements == first.elements && other.last == first.last);
    }
  }
  return 0;
}
