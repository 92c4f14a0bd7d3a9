// A foreign block: parse its header, decode it on every target. All targets must agree on the
// status and, if it is ok, on the bits; the sanitizers see to it that nobody leaves a span.
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/target/target.h"
#include "fuzz_input.h"

using namespace tern;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  wire::BlockHeader header;
  if (wire::parse_block_header(bytes, header) != wire::BlockError::none) return 0;
  // Of its own length, so that one byte read too far is found.
  const auto rest = bytes.subspan(wire::kBlockHeaderBytes);
  const std::vector<std::byte> payload(rest.begin(), rest.end());
  std::vector<float> first;
  std::vector<float> first_sums;
  codec::DecodeStatus first_status = codec::DecodeStatus::ok;
  for (const std::string_view target : codec::target::supported()) {
    TERN_CHECK(codec::target::force(target));
    std::vector<float> out(header.elements, 1.0f);
    std::vector<float> sums(header.elements, 1.0f);
    const auto status = codec::decode(header, payload, out, fuzz::workspace());
    TERN_CHECK(codec::decode_add(header, payload, sums, fuzz::workspace()) == status);
    std::vector<float> shift(header.elements, 0.5f);
    std::uint64_t step = header.stream_step;
    const codec::ShiftStream stream{shift.data(), &step, 0.25f, 1.0f};
    codec::decode_shifted(header, payload, stream, sums, fuzz::workspace());
    std::fill(sums.begin(), sums.end(), 1.0f);
    codec::decode_add(header, payload, sums, fuzz::workspace());
    const std::size_t native = header.elements * dtype_bytes(static_cast<DType>(header.dtype));
    std::vector<std::byte> last(native, std::byte{1}), elements(native);
    codec::decode_lossless(header, payload, last, elements, fuzz::workspace());
    if (target == codec::target::supported().front()) {
      first = out;
      first_sums = sums;
      first_status = status;
      continue;
    }
    TERN_CHECK(status == first_status);
    if (status != codec::DecodeStatus::ok || out.empty()) continue;
    TERN_CHECK(std::memcmp(out.data(), first.data(), 4 * out.size()) == 0);
    // Raw payloads may hold any NaN, and which of two NaNs survives an addition is the compiler's
    // choice.
    if (header.codec == static_cast<std::uint8_t>(wire::CodecId::threelc)) {
      TERN_CHECK(std::memcmp(sums.data(), first_sums.data(), 4 * sums.size()) == 0);
    }
  }
  return 0;
}
