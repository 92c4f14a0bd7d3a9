#include "daemon/lane/trace_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tern::daemon {
namespace {

constexpr std::array kKinds{
    TraceKindText{"op", "a lane's part of an operation, from its submission to its end"},
    TraceKindText{"wait", "from the submission of an operation until all nodes have announced it"},
    TraceKindText{"queue", "from there until its first block is encoded"},
    TraceKindText{"encode", "a chunk becomes a block"},
    TraceKindText{"wire",
                  "a block from the moment it is handed to its link until every receiver has "
                  "acknowledged it"},
    TraceKindText{"decode", "a block is decoded and added, or delivered"},
};
static_assert(kKinds.size() == static_cast<std::size_t>(TraceKind::decode) + 1);

constexpr std::size_t mapping_bytes() { return TraceRing::kEvents * sizeof(TraceEvent); }

}  // namespace

std::span<const TraceKindText> trace_kinds() { return kKinds; }

TraceRing::TraceRing() {
  void* const memory = ::mmap(nullptr, mapping_bytes(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TERN_CHECK(memory != MAP_FAILED);
  words_ = static_cast<std::uint64_t*>(memory);
}

TraceRing::~TraceRing() { ::munmap(words_, mapping_bytes()); }

void TraceRing::record(const TraceEvent& event) noexcept {
  std::array<std::uint64_t, kWords> words;
  std::memcpy(words.data(), &event, sizeof(event));
  const std::uint64_t index = head_.load(std::memory_order_relaxed);
  // Each with release: who sees a word of this event sees that the one before is complete.
  for (std::size_t i = 0; i < kWords; ++i) {
    word(index, i).store(words[i], std::memory_order_release);
  }
  head_.store(index + 1, std::memory_order_release);
}

void TraceRing::start() noexcept {
  begin_ = head_.load(std::memory_order_acquire);
  on_.store(true, std::memory_order_relaxed);
}

TraceRing::Page TraceRing::read(std::uint64_t from, std::size_t most) const {
  Page page;
  const std::uint64_t end = head_.load(std::memory_order_acquire);
  // The place of the one before these may be in the lane's hands.
  const auto oldest_sound = [this] {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    return head >= kEvents ? head - kEvents + 1 : 0;
  };
  std::uint64_t index = std::max(begin_ + from, oldest_sound());
  const std::uint64_t first = index;
  for (; index < end && page.events.size() < most; ++index) {
    std::array<std::uint64_t, kWords> words;
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i] = word(index, i).load(std::memory_order_acquire);
    }
    TraceEvent event;
    std::memcpy(static_cast<void*>(&event), words.data(), sizeof(event));
    page.events.push_back(event);
  }
  // What the lane has overwritten meanwhile is not to be believed.
  const std::uint64_t sound = oldest_sound();
  const std::uint64_t torn =
      std::min<std::uint64_t>(sound > first ? sound - first : 0, page.events.size());
  page.events.erase(page.events.begin(), page.events.begin() + static_cast<std::ptrdiff_t>(torn));
  const std::uint64_t wanted = std::min(begin_ + from, end);
  page.dropped = first + torn > wanted ? std::min(first + torn, end) - wanted : 0;
  page.next = std::max(index, wanted) - begin_;
  page.more = index < end;
  return page;
}

}  // namespace tern::daemon
