#pragma once

// What has arrived on a link, and how much of that the peer has been told.
//
// Every frame that leaves acknowledges all that has arrived (FrameHeader::ack_seq). An ack frame is
// sent where none leaves for a while, and where none with a report of speed (AckBody) has left for
// many frames.

#include <cstdint>

#include "net/link.h"
#include "wire/frame.h"

namespace tern::net {

class Arrivals {
 public:
  explicit Arrivals(const LinkSettings& settings) noexcept
      : ack_delay_ns_(settings.ack_delay_ns),
        ack_frames_(settings.ack_frames),
        ack_bytes_(settings.ack_bytes) {}

  // The sequence number that the peer's next frame must have.
  std::uint64_t next() const noexcept { return next_; }
  std::uint64_t newest() const noexcept { return next_ - 1; }
  void add(std::uint32_t payload_bytes) noexcept {
    ++next_;
    bytes_ += payload_bytes;
    owed_bytes_ += payload_bytes;
  }

  // A frame that acknowledges all that has arrived has been given to the connection.
  void note_acknowledged() noexcept {
    acknowledged_ = newest();
    owed_bytes_ = 0;
    owed_since_ns_ = 0;
    awaited_ = false;
  }
  // The peer waits for the acknowledgement of what has arrived.
  void note_awaited() noexcept { awaited_ = owes_ack(); }
  // That frame was an ack, with a report.
  void note_reported() noexcept { reported_ = next_; }
  // A connection has opened, and its hello has said what had arrived.
  void restart() noexcept;

  bool owes_ack() const noexcept { return newest() != acknowledged_; }
  // Whether an ack frame should leave now. The delay of an ack begins with the first call after
  // something has arrived.
  bool is_ack_due(std::uint64_t now) noexcept {
    if (owes_ack()) {
      if (owed_since_ns_ == 0) owed_since_ns_ = now;
      const bool is_due = awaited_ || newest() - acknowledged_ >= ack_frames_ ||
                          owed_bytes_ >= ack_bytes_ || now >= owed_since_ns_ + ack_delay_ns_;
      if (is_due) return !is_put_off(now);
    }
    return next_ >= reported_ + kReportEveryAcks * ack_frames_ && !is_put_off(now);
  }
  // No frame could be sent: nothing is due before another delay has passed.
  void put_off(std::uint64_t now) noexcept { put_off_until_ns_ = now + ack_delay_ns_; }
  bool is_put_off(std::uint64_t now) const noexcept { return now < put_off_until_ns_; }
  // When the next frame is due, given when the last one left and when one must leave in any case.
  std::uint64_t next_send_ns(std::uint64_t sent_ns, std::uint64_t at_latest_ns) const noexcept;

  // What ack frames report beside the sequence number.
  void add_decode_ns(std::uint64_t ns) noexcept { decode_ns_ += ns; }
  void set_delivered(std::uint64_t bytes_per_s) noexcept { delivered_ = bytes_per_s; }
  wire::AckBody report(std::uint64_t now) const noexcept {
    return {bytes_, now, decode_ns_, delivered_};
  }

 private:
  // Acks that travel in the headers of other frames lack the report.
  static constexpr std::uint64_t kReportEveryAcks = 8;

  std::uint64_t ack_delay_ns_;
  std::uint32_t ack_frames_;
  std::uint64_t ack_bytes_;

  std::uint64_t next_ = 1;
  std::uint64_t bytes_ = 0;          // of payload, in total
  std::uint64_t acknowledged_ = 0;   // the newest frame that the peer has been told of
  std::uint64_t owed_bytes_ = 0;     // of the frames after that one
  bool awaited_ = false;             // the peer waits to be told
  std::uint64_t owed_since_ns_ = 0;  // zero: not noticed by is_ack_due() yet
  std::uint64_t reported_ = 0;       // next_ when the last report left
  std::uint64_t put_off_until_ns_ = 0;
  std::uint64_t decode_ns_ = 0;
  std::uint64_t delivered_ = 0;  // bytes per second
};

}  // namespace tern::net
