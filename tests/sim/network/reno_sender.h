#pragma once

// The sending half of a TCP connection, as arithmetic on the places of a stream: which bytes may
// leave now, and when it is time to send some again. Reno: slow start, congestion avoidance, fast
// retransmit on the third duplicate acknowledgement (RFC 5681), fast recovery with partial
// acknowledgements (RFC 6582), a timeout of 200 ms at least that doubles (RFC 6298, and Linux), a
// small window after a pause. Windows grow only where they bind.
//
// Coarse: there is no SACK and no probe for lost tails, so that several losses of one window cost
// more than they would under Linux. The receiver's window never binds.

#include <cstdint>
#include <deque>

namespace tern::sim {

class RenoSender {
 public:
  static constexpr std::uint64_t kSegmentBytes = 1448;  // 1500 less the headers of IP and TCP
  static constexpr std::uint64_t kInitialWindow = 10 * kSegmentBytes;
  static constexpr std::uint64_t kLeastTimeoutNs = 200'000'000;
  static constexpr std::uint64_t kMostTimeoutNs = 120'000'000'000;

  struct Segment {
    std::uint64_t begin = 0;
    std::uint32_t bytes = 0;
    bool again = false;
  };

  // The connection has opened, by packets that took so long to go and come back.
  void on_open(std::uint64_t round_trip_ns) noexcept { shortest_ns_ = round_trip_ns; }
  // So many more bytes can be sent. `ends_record`: no segment holds bytes before and behind them.
  void write(std::uint64_t bytes, bool ends_record, std::uint64_t now_ns);
  // The next segment, if one may leave now.
  bool next(std::uint64_t now_ns, Segment& segment);
  // All before `ack` has arrived. `is_pure`: the packet had nothing else to say.
  void on_ack(std::uint64_t ack, bool is_pure, std::uint64_t now_ns);
  void on_time(std::uint64_t now_ns);
  // When it wants on_time(). Never, while nothing is under way.
  std::uint64_t deadline_ns() const noexcept;

  std::uint64_t written() const noexcept { return written_; }
  std::uint64_t acked() const noexcept { return acked_; }
  std::uint64_t held() const noexcept { return written_ - acked_; }
  std::uint64_t window() const noexcept { return window_; }
  std::uint64_t busy_ns(std::uint64_t now_ns) const noexcept {
    return busy_ns_ + (held() > 0 ? now_ns - busy_since_ns_ : 0);
  }
  std::uint64_t shortest_round_trip_ns() const noexcept { return shortest_ns_; }
  std::uint64_t fast_retransmits() const noexcept { return fast_retransmits_; }
  std::uint64_t timeouts() const noexcept { return timeouts_; }

 private:
  std::uint64_t under_way() const noexcept { return next_ - acked_; }
  std::uint64_t segment_end(std::uint64_t begin) const noexcept;
  void on_new_ack(std::uint64_t ack, std::uint64_t now_ns);
  void on_duplicate();
  void grow(std::uint64_t newly_acked) noexcept;
  void measure(std::uint64_t ack, std::uint64_t now_ns) noexcept;
  void halve() noexcept;

  std::uint64_t written_ = 0;
  std::uint64_t acked_ = 0;
  std::uint64_t next_ = 0;     // the next byte to leave
  std::uint64_t highest_ = 0;  // beyond all that has ever left
  std::deque<std::uint64_t> record_ends_;

  std::uint64_t window_ = kInitialWindow;
  std::uint64_t threshold_ = ~std::uint64_t{0};
  bool window_binds_ = false;
  std::uint32_t duplicates_ = 0;
  bool recovers_ = false;
  std::uint64_t recovery_end_ = 0;
  bool resends_first_ = false;  // the segment at acked_ leaves before all others

  std::uint64_t sent_ns_ = 0;    // when a segment left last
  std::uint64_t timer_ns_ = 0;   // since when the oldest byte is awaited
  std::uint64_t timed_end_ = 0;  // the segment whose round trip is measured; 0: none
  std::uint64_t timed_ns_ = 0;   // when it left
  std::uint64_t smooth_ns_ = 0;  // 0: nothing measured
  std::uint64_t variation_ns_ = 0;
  std::uint64_t shortest_ns_ = 0;
  std::uint64_t timeout_ns_ = kLeastTimeoutNs;  // opening the connection was a round trip
  std::uint64_t busy_since_ns_ = 0;
  std::uint64_t busy_ns_ = 0;
  std::uint64_t fast_retransmits_ = 0;
  std::uint64_t timeouts_ = 0;
};

}  // namespace tern::sim
