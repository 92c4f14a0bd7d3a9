#pragma once

// The receiving half of every connection: bytes become frames here, whatever carries them.
//
// A frame arrives in four steps. read_header() verifies its header; announce() asks the sink where
// the payload goes; the payload then arrives in pieces of any size, copied here (copy_in) or read
// straight into its place by the carrier (open_places, take_placed); deliver() hands it over with
// the verdict on its CRC. A connection that ends between announce() and deliver() has abandoned the
// frame: its place is free again, and the sink learns that from on_closed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "net/transport.h"
#include "wire/frame.h"

namespace tern::net {

// Thread: the lane's. A sink may end the connection in announce() and in deliver(); the receiver
// must outlive the call, and its owner looks at the connection before it goes on.
class FrameReceiver {
 public:
  static constexpr const char* kRefused = "a frame was refused";

  // REQUIRES: not inside a frame. None: header() is that of the frame that begins with these bytes.
  wire::ParseError read_header(std::span<const std::byte> bytes) noexcept {
    const wire::ParsedFrame parsed = wire::parse_frame_header(bytes);
    header_ = parsed.header;
    return parsed.error;
  }
  const wire::FrameHeader& header() const noexcept { return header_; }

  // False: the sink has refused the frame, and the connection is to be closed as corrupt.
  // REQUIRES: read_header() has said none.
  [[nodiscard]] bool announce(ConnectionSink& sink, Connection& connection) {
    place_ = {};
    done_ = 0;
    crc_ = 0;
    inside_ = sink.on_header(connection, header_, place_);
    return inside_;
  }

  // From announce() to deliver().
  bool is_inside() const noexcept { return inside_; }
  std::size_t missing_bytes() const noexcept { return header_.payload_bytes - done_; }

  // What is left of the two parts of the place, in order; both empty for a payload that is thrown
  // away.
  std::array<std::span<std::byte>, 2> open_places() const noexcept;
  // The first of these `count` bytes have been read into the open places, as far as they went.
  // Returns how many those were.
  std::size_t take_placed(std::size_t count) noexcept;
  // Puts the payload's part of these bytes into the open places, or nowhere if it is thrown away.
  // Returns how many bytes were the payload's.
  std::size_t copy_in(std::span<const std::byte> bytes) noexcept;

  // REQUIRES: inside a frame of which nothing is missing.
  void deliver(ConnectionSink& sink, Connection& connection) {
    inside_ = false;
    const bool valid = !checks_payload_ || crc_ == header_.payload_crc;
    sink.on_frame(connection, header_, place_, valid);
  }

  // False: the carrier protects payloads by itself, so that their CRC is neither computed nor
  // compared. REQUIRES: not inside a frame.
  void check_payload(bool checks) noexcept { checks_payload_ = checks; }
  bool checks_payload() const noexcept { return checks_payload_; }

 private:
  wire::FrameHeader header_;
  PayloadPlace place_;
  std::size_t done_ = 0;  // bytes of the payload that have arrived
  std::uint32_t crc_ = 0;
  bool inside_ = false;
  bool checks_payload_ = true;
};

}  // namespace tern::net
