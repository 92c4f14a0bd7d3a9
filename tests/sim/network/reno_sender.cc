#include "reno_sender.h"

#include <algorithm>

#include "base/check.h"

namespace tern::sim {

void RenoSender::write(std::uint64_t bytes, bool ends_record, std::uint64_t now_ns) {
  if (held() == 0) busy_since_ns_ = now_ns;
  written_ += bytes;
  if (ends_record) record_ends_.push_back(written_);
}

std::uint64_t RenoSender::segment_end(std::uint64_t begin) const noexcept {
  const std::uint64_t end = std::min(written_, begin + kSegmentBytes);
  const auto record = std::upper_bound(record_ends_.begin(), record_ends_.end(), begin);
  return record == record_ends_.end() ? end : std::min(end, *record);
}

bool RenoSender::next(std::uint64_t now_ns, Segment& segment) {
  const bool pauses = next_ == acked_ && now_ns - sent_ns_ > timeout_ns_;
  if (pauses) window_ = std::min(window_, kInitialWindow);
  const std::uint64_t begin = resends_first_ ? acked_ : next_;
  const std::uint64_t end = segment_end(begin);
  if (begin == end) {
    window_binds_ = false;
    return false;
  }
  if (!resends_first_ && under_way() > 0 && end - acked_ > window_) {
    window_binds_ = true;
    return false;
  }
  if (under_way() == 0 || resends_first_) timer_ns_ = now_ns;
  segment = {begin, static_cast<std::uint32_t>(end - begin), begin < highest_};
  resends_first_ = false;
  next_ = std::max(next_, end);
  highest_ = std::max(highest_, end);
  sent_ns_ = now_ns;
  if (segment.again) {
    timed_end_ = 0;  // an answer could be to either of the two
  } else if (timed_end_ == 0) {
    timed_end_ = end;
    timed_ns_ = now_ns;
  }
  return true;
}

void RenoSender::on_ack(std::uint64_t ack, bool is_pure, std::uint64_t now_ns) {
  TERN_CHECK(ack <= highest_);
  if (ack > acked_) {
    on_new_ack(ack, now_ns);
  } else if (ack == acked_ && is_pure && under_way() > 0) {
    on_duplicate();
  }
}

void RenoSender::on_new_ack(std::uint64_t ack, std::uint64_t now_ns) {
  const std::uint64_t newly_acked = ack - acked_;
  measure(ack, now_ns);
  acked_ = ack;
  next_ = std::max(next_, ack);
  timer_ns_ = now_ns;
  duplicates_ = 0;
  while (!record_ends_.empty() && record_ends_.front() <= ack) record_ends_.pop_front();
  if (held() == 0) busy_ns_ += now_ns - busy_since_ns_;
  if (!recovers_) return grow(newly_acked);
  if (ack >= recovery_end_) {
    recovers_ = false;
    window_ = std::min(threshold_, under_way() + kSegmentBytes);
  } else {
    // The next hole of the same window.
    resends_first_ = true;
    window_ = std::max(window_ - std::min(window_, newly_acked) + kSegmentBytes, kSegmentBytes);
  }
}

void RenoSender::on_duplicate() {
  constexpr std::uint32_t kThird = 3;
  if (recovers_) {
    window_ += kSegmentBytes;
  } else if (++duplicates_ == kThird && acked_ >= recovery_end_) {
    halve();
    window_ = threshold_ + kThird * kSegmentBytes;
    recovers_ = true;
    recovery_end_ = next_;
    resends_first_ = true;
    ++fast_retransmits_;
  }
}

void RenoSender::halve() noexcept { threshold_ = std::max(under_way() / 2, 2 * kSegmentBytes); }

void RenoSender::grow(std::uint64_t newly_acked) noexcept {
  if (!window_binds_) return;
  if (window_ < threshold_) {
    window_ += newly_acked;
  } else {
    window_ += std::max<std::uint64_t>(kSegmentBytes * newly_acked / window_, 1);
  }
}

void RenoSender::measure(std::uint64_t ack, std::uint64_t now_ns) noexcept {
  if (timed_end_ == 0 || ack < timed_end_) return;
  timed_end_ = 0;
  const std::uint64_t sample = now_ns - timed_ns_;
  shortest_ns_ = shortest_ns_ == 0 ? sample : std::min(shortest_ns_, sample);
  if (smooth_ns_ == 0) {
    smooth_ns_ = sample;
    variation_ns_ = sample / 2;
  } else {
    const std::uint64_t off = std::max(smooth_ns_, sample) - std::min(smooth_ns_, sample);
    variation_ns_ = (3 * variation_ns_ + off) / 4;
    smooth_ns_ = (7 * smooth_ns_ + sample) / 8;
  }
  timeout_ns_ = std::max(kLeastTimeoutNs, smooth_ns_ + 4 * variation_ns_);
}

std::uint64_t RenoSender::deadline_ns() const noexcept {
  return under_way() > 0 ? timer_ns_ + timeout_ns_ : ~std::uint64_t{0};
}

void RenoSender::on_time(std::uint64_t now_ns) {
  if (now_ns < deadline_ns()) return;
  ++timeouts_;
  halve();
  window_ = kSegmentBytes;
  timeout_ns_ = std::min(2 * timeout_ns_, kMostTimeoutNs);
  timer_ns_ = now_ns;
  timed_end_ = 0;
  duplicates_ = 0;
  recovers_ = false;
  // Duplicates of what is sent again now say nothing of a new loss.
  recovery_end_ = highest_;
  resends_first_ = false;
  next_ = acked_;
  window_binds_ = true;
}

}  // namespace tern::sim
