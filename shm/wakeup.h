#pragma once

// How the two sides sleep and wake each other without a system call while both are busy
// (docs/shm-layout.md, "Sleep and wake").
//
// Client -> lane: the lane announces its sleep in the lane's word and looks at the ring once more;
// the client publishes an entry and then looks at the word. Daemon -> client: the lane adds 1 to
// the doorbell and then looks for sleepers; the client counts itself as a sleeper and then sleeps
// on the doorbell's old value. All accesses are seq_cst, hence in one order, and one of the two
// always sees the other (store-buffer litmus test).

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/result.h"
#include "shm/layout.h"

namespace tern::shm {

// Made by the daemon, one per client and lane (a client can fill or drain what it shares with
// others).
Result<Fd> make_eventfd();

// The pair behind tern_fd(): first stays with the daemon, second goes to the client. The daemon's
// end takes no descriptors, where the kernel can refuse them.
Result<std::pair<Fd, Fd>> make_notify_pair();

// ---- Lane, Thread: the lane's ----

// Sequence of a lane that wants to sleep: announce_sleep for each of its clients; if then any
// submit ring is not empty(), end_sleep and work on; else sleep until an eventfd is readable, then
// end_sleep. It may drain the eventfd later, before it announces the next sleep: until then nobody
// rings. Or after that, if it then looks at the rings again and does not sleep.
inline void announce_sleep(LaneRings& rings) noexcept {
  std::atomic_ref<std::uint32_t>(rings.lane_sleeps).store(1, std::memory_order_seq_cst);
}
inline void end_sleep(LaneRings& rings) noexcept {
  std::atomic_ref<std::uint32_t>(rings.lane_sleeps).store(0, std::memory_order_relaxed);
}

// Makes the eventfd unreadable. Never blocks, even if the client has cleared O_NONBLOCK, which
// belongs to the description that both share. Returns false if it was not readable.
bool drain_eventfd(int eventfd) noexcept;

// After completions were published. Wakes all threads that sleep on the doorbell, and sends the
// byte that an armed tern_fd() waits for. Never blocks. Thread: any of the daemon's.
void ring_doorbell(SegmentHeader& header, int notify_fd) noexcept;

// ---- Client ----

// After entries were published to the lane. True if the lane slept and was woken.
bool wake_lane(LaneRings& rings, int eventfd) noexcept;

// What to pass to sleep_on_doorbell; read before the completion rings are polled.
inline std::uint32_t read_doorbell(SegmentHeader& header) noexcept {
  return std::atomic_ref<std::uint32_t>(header.doorbell).load(std::memory_order_seq_cst);
}

// Sleeps until the doorbell differs from seen, at most timeout_ns. May return early.
void sleep_on_doorbell(SegmentHeader& header, std::uint32_t seen,
                       std::uint64_t timeout_ns) noexcept;

// Wakes the process's other sleepers without a completion, also one that has read the doorbell and
// is about to sleep: the connection is lost, or a thread has copied what another one waits for.
void wake_sleepers(SegmentHeader& header) noexcept;

// Asks for one byte on the notify pair after the next completion. Poll the rings after arming.
inline void arm_notify(SegmentHeader& header) noexcept {
  std::atomic_ref<std::uint32_t>(header.fd_armed).store(1, std::memory_order_seq_cst);
}
inline bool notify_armed(SegmentHeader& header) noexcept {
  return std::atomic_ref<std::uint32_t>(header.fd_armed).load(std::memory_order_seq_cst) == 1;
}

// Takes the bytes of ring_doorbell; returns how many there were.
std::size_t drain_notify(int notify_fd) noexcept;

}  // namespace tern::shm
