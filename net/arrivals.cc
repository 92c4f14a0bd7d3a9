#include "net/arrivals.h"

#include <algorithm>

namespace tern::net {

void Arrivals::add(std::uint32_t payload_bytes) noexcept {
  ++next_;
  bytes_ += payload_bytes;
  owed_bytes_ += payload_bytes;
}

void Arrivals::note_acknowledged() noexcept {
  acknowledged_ = newest();
  owed_bytes_ = 0;
  owed_since_ns_ = 0;
}

void Arrivals::restart() noexcept {
  note_acknowledged();
  note_reported();
  put_off_until_ns_ = 0;
}

bool Arrivals::is_ack_due(std::uint64_t now) noexcept {
  if (owes_ack() && owed_since_ns_ == 0) owed_since_ns_ = now;
  if (is_put_off(now)) return false;
  if (owes_ack() && (newest() - acknowledged_ >= ack_frames_ || owed_bytes_ >= ack_bytes_ ||
                     now >= owed_since_ns_ + ack_delay_ns_)) {
    return true;
  }
  return next_ >= reported_ + kReportEveryAcks * ack_frames_;
}

std::uint64_t Arrivals::next_send_ns(std::uint64_t sent_ns,
                                     std::uint64_t at_latest_ns) const noexcept {
  std::uint64_t next = at_latest_ns;
  if (owes_ack()) {
    const std::uint64_t since = owed_since_ns_ == 0 ? sent_ns : owed_since_ns_;
    next = std::min(next, since + ack_delay_ns_);
  }
  return std::max(next, put_off_until_ns_);
}

}  // namespace tern::net
