#include "network_pipe.h"

namespace tern::sim {

void SendQueue::write(RenoSender& sender, ByteRing& stream, std::uint64_t now_ns) {
  const std::uint64_t most = limit(sender);
  if (sender.held() * 3 <= most * 2) is_full_ = false;
  while (!is_full_ && queued_bytes_ > 0) {
    const bool is_bound = bound_.bytes > 0;
    const std::size_t written =
        write_once(is_bound ? bound_.record_bytes : kUnboundWriteBytes, stream);
    sender.write(written, is_bound, now_ns);
    is_full_ = sender.held() >= most;
  }
}

std::size_t SendQueue::write_once(std::size_t most, ByteRing& stream) {
  std::size_t written = 0;
  while (written < most && !frames_.empty()) {
    const net::OutgoingFrame& frame = frames_.at(0);
    const std::size_t head = frame.head.size();
    const bool in_head = first_done_ < head;
    const auto rest =
        in_head ? frame.head.subspan(first_done_) : frame.body.subspan(first_done_ - head);
    const auto part = rest.first(std::min(rest.size(), most - written));
    if (!part.empty()) stream.write(part);
    written += part.size();
    first_done_ += part.size();
    if (first_done_ == head + frame.body.size()) {
      frames_.pop();
      first_done_ = 0;
    }
  }
  queued_bytes_ -= written;
  return written;
}

}  // namespace tern::sim
