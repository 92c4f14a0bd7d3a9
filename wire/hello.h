#pragma once

// How a connection begins: what a valid hello is, and the frames that open or refuse a link.

#include <cstdint>
#include <span>

#include "base/errc.h"
#include "wire/frame.h"

namespace tern::wire {

// The header version of hello, hello_reply and refuse, for ever: they are exchanged before the two
// sides know which versions they share.
inline constexpr std::uint16_t kHelloVersion = 1;

enum class HelloError : std::uint8_t {
  none,
  wrong_kind,
  wrong_size,
  bad_payload_crc,
  reserved_not_zero,
  no_common_version,
  bad_value,  // no node, no session, a sequence number of zero, or a resume that is neither 0 nor 1
};
const char* hello_error_text(HelloError error) noexcept;
// The code under which a hello with this error is refused.
Errc hello_error_code(HelloError error) noexcept;

struct ParsedHello {
  HelloError error = HelloError::none;
  std::uint16_t version = 0;  // the highest that both sides speak
  HelloBody body;
};

// `header` is one that parse_frame_header has accepted, `payload` all bytes that follow it. Accepts
// hello and hello_reply.
ParsedHello parse_hello(const FrameHeader& header, std::span<const std::byte> payload) noexcept;

// Whole frames, contiguous and sealed.
struct HelloFrame {
  FrameHeader header;
  HelloBody body;
};
TERN_FORMAT_STRUCT(HelloFrame, 168);

struct RefuseFrame {
  FrameHeader header;
  RefuseBody body;
};
TERN_FORMAT_STRUCT(RefuseFrame, 344);

// REQUIRES: kind is hello or hello_reply.
HelloFrame make_hello(FrameKind kind, const HelloBody& body) noexcept;
// The text is cut to what fits.
RefuseFrame make_refuse(Errc code, const char* text) noexcept;

}  // namespace tern::wire
