#pragma once

// The clients of a lane: entries from their submission rings, completions to them.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "daemon/lane/event_reports.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/lane_settings.h"
#include "daemon/lane/operand.h"
#include "net/event_loop.h"
#include "net/transport.h"
#include "shm/layout.h"

namespace tern::daemon {

// Memory beside a client's arena.
struct LaneRegion {
  RegionMemory* memory = nullptr;
  Region bytes;
  // Once the conductor wants it back, only entries before this number may name it.
  std::uint64_t entries_end = ~std::uint64_t{0};

  bool is_dropping() const noexcept { return entries_end != ~std::uint64_t{0}; }
};

struct LaneClient {
  ClientMemory* memory = nullptr;
  // What the transport was told of; the conductor may have unmapped it when the lane ends.
  Region arena;
  std::vector<std::unique_ptr<LaneRegion>> regions;
  shm::RingConsumer<shm::SubmitEntry> submissions;
  shm::RingProducer<shm::CompletionEntry> completions;
  std::uint64_t watch = 0;
  std::uint64_t taken = 0;           // entries
  std::uint64_t before_move = 0;     // so many entries are older than the state moves that wait
  std::uint32_t uses = 0;            // (op, rank) pairs that refer to its memory
  std::uint64_t refusal_due_ns = 0;  // when the conductor may hear of another refused entry
  bool dropping = false;             // it is gone: nothing is written to its rings
  bool drop_requested = false;       // by the conductor
  bool rang = false;                 // has completions that the doorbell does not know

  // What the entry taken last names; null: there is none.
  const Region* region(std::uint32_t id) const noexcept;
  // Pages that were not there when they were used, in any of it.
  bool has_lost_pages() const noexcept;
};

// Takes a client's entries in their order.
class EntrySink {
 public:
  // A copy of the lane's own: what is checked is what is used.
  virtual void on_entry(LaneClient& client, const shm::SubmitEntry& entry) = 0;

 protected:
  ~EntrySink() = default;
};

// How an op has ended for one rank.
struct Completion {
  std::uint64_t ticket = 0;
  Errc code = Errc::ok;
  const char* text = "";
  std::uint64_t bytes_sent = 0;
  std::uint32_t source = 0;          // of a recv
  std::uint64_t elements = 0;        // likewise
  std::uint32_t encode_next_by = 0;  // CompletionEntry's
};

class LaneClients {
 public:
  struct Surroundings {
    const Clock& clock;
    net::Transport& transport;
    net::EventLoop* loop = nullptr;  // watches the clients' eventfds; null: somebody steps the lane
  };

  // Everything given outlives this.
  LaneClients(std::uint32_t lane, const Surroundings& surroundings, EventReports& reports)
      : lane_(lane), surroundings_(surroundings), reports_(reports) {}
  ~LaneClients();
  LaneClients(const LaneClients&) = delete;
  LaneClients& operator=(const LaneClients&) = delete;

  void count_in(LaneCounters& counters) noexcept { counters_ = &counters; }

  void add(ClientMemory& memory);
  void request_drop(const ClientMemory& memory);
  void run(const command::AddRegion& add);
  void run(const command::DropRegion& drop);
  // Drops the regions that the conductor wants back and nobody uses; tells it. How many, and no more
  // in one turn than reports have room for.
  int drop_regions();
  LaneClient* find(std::uint64_t id) noexcept;
  std::size_t size() const noexcept { return clients_.size(); }
  LaneClient& operator[](std::size_t index) noexcept { return *clients_[index]; }
  // The next one that nobody uses any more and the conductor wants back, or null.
  LaneClient* droppable() noexcept;
  // Tells the conductor. REQUIRES: nobody refers to it.
  void drop(LaneClient& client);
  bool any_dropping() const noexcept;

  // False: there is none.
  bool take_entry(LaneClient& client, EntrySink& sink);
  // What waits in the rings now is older than a move of state that is asked for now.
  void mark_before_move() noexcept;
  bool has_older_than_move() const noexcept;

  void tell(LaneClient& client, const Completion& completion);
  // Tells the client, counts, and says it to the conductor's log.
  void refuse(LaneClient& client, std::uint64_t ticket, Errc code, const char* text);
  void ring_doorbells();
  // Between these two clients wake the lane's event loop. False: there is work already.
  bool announce_sleep();
  void end_sleep();

 private:
  void misbehaves(LaneClient& client, const char* how);
  bool ends_without_pages(LaneClient& client);
  static constexpr int kRegionsPerTurn = 256;

  void let_go(const LaneRegion& region);

  std::uint32_t lane_;
  Surroundings surroundings_;
  EventReports& reports_;
  LaneCounters* counters_ = nullptr;
  std::vector<std::unique_ptr<LaneClient>> clients_;
  std::size_t regions_to_drop_ = 0;
};

}  // namespace tern::daemon
