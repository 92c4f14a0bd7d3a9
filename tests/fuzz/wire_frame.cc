// Any bytes as a frame header: what is accepted is well formed and seals to the same bytes again.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "wire/frame.h"

namespace tern::wire {
namespace {

void check_accepted(const FrameHeader& header, std::span<const std::byte> bytes) {
  TERN_CHECK(header.magic == kFrameMagic && header.payload_bytes <= kMaxPayloadBytes);
  TERN_CHECK(header.reserved0 == 0 && header.reserved1 == 0 && header.reserved2 == 0);
  FrameHeader again = header;
  seal_frame_header(again);
  TERN_CHECK(std::memcmp(&again, bytes.data(), sizeof again) == 0);
}

}  // namespace
}  // namespace tern::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tern::wire;
  const auto bytes = std::as_bytes(std::span(data, size));
  const ParsedFrame parsed = parse_frame_header(bytes);
  TERN_CHECK(parse_error_text(parsed.error) != nullptr);
  if (parsed.error == ParseError::none) check_accepted(parsed.header, bytes);
  if (size < kFrameHeaderBytes) return 0;
  // The same with a right CRC, since a fuzzer does not guess one.
  FrameHeader header;
  std::memcpy(&header, data, sizeof header);
  seal_frame_header(header);
  const auto sealed = std::as_bytes(std::span(&header, 1));
  const ParsedFrame second = parse_frame_header(sealed);
  TERN_CHECK(second.error != ParseError::bad_header_crc);
  if (second.error == ParseError::none) check_accepted(second.header, sealed);
  return 0;
}
