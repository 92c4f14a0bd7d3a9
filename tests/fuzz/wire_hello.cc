// Any bytes as the body of a hello.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "wire/crc32c.h"
#include "wire/hello.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tern::wire;
  const auto payload = std::as_bytes(std::span(data, size));
  FrameHeader header;
  header.kind =
      static_cast<std::uint8_t>(size % 2 == 0 ? FrameKind::hello : FrameKind::hello_reply);
  header.payload_bytes = static_cast<std::uint32_t>(size);
  header.payload_crc = crc32c(payload);
  const ParsedHello parsed = parse_hello(header, payload);
  TERN_CHECK(hello_error_text(parsed.error) != nullptr);
  if (parsed.error != HelloError::none) return 0;
  TERN_CHECK(size == sizeof(HelloBody));
  TERN_CHECK(parsed.version >= kWireProtocolMin && parsed.version <= kWireProtocol);
  TERN_CHECK(parsed.body.session != 0 && parsed.body.next_receive != 0);
  const HelloFrame again = make_hello(FrameKind::hello, parsed.body);
  TERN_CHECK(std::memcmp(&again.body, data, size) == 0);
  return 0;
}
