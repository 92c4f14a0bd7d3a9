#pragma once

// What a lane keeps of each send and recv in flight.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "codec/recipe.h"
#include "collective/mailbox.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/lane_clients.h"

namespace tern::daemon {

struct PassMemory {
  LaneClient* client = nullptr;
  std::uint64_t ticket = 0;
  Operand elements;
  std::uint64_t started_ns = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t elements_sent = 0;  // in bytes
  bool encodes = false;             // a send, by `recipe`
  codec::Recipe recipe;

  void start(std::uint64_t now_ns) noexcept {
    if (started_ns == 0) started_ns = now_ns;
  }
};

class PassMemories {
 public:
  // Everything given outlives this.
  PassMemories(const GroupCore& core, collective::Mailbox& mailbox)
      : core_(core), mailbox_(mailbox) {}

  // Of a pass that has just been submitted. What it refers to stays where it is until clear().
  PassMemory& begin(collective::PassId pass);
  void clear(collective::PassId pass) noexcept { passes_[pass] = {}; }
  PassMemory& operator[](collective::PassId pass) noexcept { return passes_[pass]; }
  // The client's pass that has this ticket.
  std::optional<collective::PassId> find(const LaneClient& client, std::uint64_t ticket) const;

  // The bytes of its elements that a step is about.
  std::span<std::byte> bytes(collective::PassId pass, const collective::PassStep& step) const;
  // True: the rank's memory has lost pages, and the pass has failed.
  bool fail_if_pages_are_lost(collective::PassId pass);

 private:
  const GroupCore& core_;
  collective::Mailbox& mailbox_;
  std::deque<PassMemory> passes_;
};

}  // namespace tern::daemon
