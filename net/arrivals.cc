#include "net/arrivals.h"

#include <algorithm>

namespace tern::net {

void Arrivals::restart() noexcept {
  note_acknowledged();
  note_reported();
  put_off_until_ns_ = 0;
}

std::uint64_t Arrivals::next_send_ns(std::uint64_t sent_ns,
                                     std::uint64_t at_latest_ns) const noexcept {
  std::uint64_t next = at_latest_ns;
  if (owes_ack()) {
    const std::uint64_t since = owed_since_ns_ == 0 ? sent_ns : owed_since_ns_;
    next = std::min(next, awaited_ ? since : since + ack_delay_ns_);
  }
  return std::max(next, put_off_until_ns_);
}

}  // namespace tern::net
