#pragma once

// What a lane did lately, for `ternctl trace`: fixed-size events in a ring of the lane's own. The
// lane overwrites the oldest and never waits; while tracing is off an event costs one branch. The
// conductor turns it on and off and reads, also while the lane writes.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tern::daemon {

enum class TraceKind : std::uint8_t { op, wait, queue, encode, wire, decode };

struct TraceEvent {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t group = 0;   // this daemon's number for it
  std::uint64_t tensor = 0;  // 0: an anonymous op
  std::uint64_t sequence = 0;
  std::uint64_t bytes_raw = 0;
  std::uint64_t bytes = 0;  // on the wire
  std::uint32_t chunk = 0;
  std::uint16_t node = 0;  // the other one: owner or sender; of an op: its kind
  TraceKind kind{};
  std::uint8_t codec = 0;  // wire::CodecId; of an op: its error code
};
static_assert(sizeof(TraceEvent) == 64 && std::is_trivially_copyable_v<TraceEvent>);

// One line of documentation for each kind.
struct TraceKindText {
  std::string_view name;
  std::string_view help;
};
std::span<const TraceKindText> trace_kinds();

class TraceRing {
 public:
  static constexpr std::uint64_t kEvents = 1 << 16;

  TraceRing();  // reserves address space; pages are taken when events are written
  ~TraceRing();
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  // Thread: the lane's.
  void record(const TraceEvent& event) noexcept;

  // ---- Thread: the conductor's ----
  void start() noexcept;  // what was recorded before is gone
  void stop() noexcept { on_.store(false, std::memory_order_relaxed); }
  struct Page {
    std::vector<TraceEvent> events;
    std::uint64_t next = 0;  // from where to read on
    std::uint64_t dropped =
        0;  // events between `from` and the first of these that were overwritten
    bool more = false;
  };
  // Events are numbered from 0 at the start of the recording.
  Page read(std::uint64_t from, std::size_t most) const;

 private:
  static constexpr std::size_t kWords = sizeof(TraceEvent) / sizeof(std::uint64_t);
  std::atomic_ref<std::uint64_t> word(std::uint64_t index, std::size_t i) const noexcept {
    return std::atomic_ref<std::uint64_t>(words_[(index % kEvents) * kWords + i]);
  }

  std::uint64_t* words_ = nullptr;
  std::atomic<bool> on_{false};
  std::atomic<std::uint64_t> head_{0};  // events written since ever
  std::uint64_t begin_ = 0;             // head_ at the start of the recording
};

}  // namespace tern::daemon
