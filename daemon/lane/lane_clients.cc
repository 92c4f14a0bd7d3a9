#include "daemon/lane/lane_clients.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "shm/wakeup.h"

namespace tern::daemon {
namespace {

// A client may be refused at every entry; the log says it once a second.
constexpr std::uint64_t kRefusalEveryNs = 1'000'000'000;

}  // namespace

const Region* LaneClient::region(std::uint32_t id) const noexcept {
  if (id == 0) return &arena;
  for (const auto& region : regions) {
    if (region->memory->id == id && taken <= region->entries_end) return &region->bytes;
  }
  return nullptr;
}

bool LaneClient::has_lost_pages() const noexcept {
  return memory->segment.has_lost_pages() ||
         std::any_of(regions.begin(), regions.end(),
                     [](const auto& region) { return region->memory->segment.has_lost_pages(); });
}

LaneClients::~LaneClients() {
  for (const auto& client : clients_) {
    surroundings_.transport.forget_memory(memory_of(client->arena));
    for (const auto& region : client->regions) {
      surroundings_.transport.forget_memory(memory_of(region->bytes));
    }
  }
}

void LaneClients::add(ClientMemory& memory) {
  auto client = std::make_unique<LaneClient>();
  client->memory = &memory;
  client->submissions = shm::RingConsumer<shm::SubmitEntry>(memory.segment.submit_ring(lane_));
  client->completions =
      shm::RingProducer<shm::CompletionEntry>(memory.segment.completion_ring(lane_));
  if (surroundings_.loop != nullptr) {
    const int eventfd = memory.eventfds[lane_].get();
    const auto watch = surroundings_.loop->watch_doorbell(
        std::move(memory.watched[lane_]), [eventfd] { shm::drain_eventfd(eventfd); });
    TERN_CHECK(watch.has_value());  // of a good descriptor
    client->watch = *watch;
  }
  const auto arena = memory.segment.arena();
  client->arena = {arena.data(), arena.size()};
  // Arenas are host memory, which no transport refuses.
  TERN_CHECK(surroundings_.transport.remember_memory(memory_of(client->arena)).has_value());
  clients_.push_back(std::move(client));
}

void LaneClients::run(const command::AddRegion& add) {
  LaneClient* const owner = find(add.client);
  if (owner == nullptr) return;  // it has been dropped meanwhile
  const auto bytes = add.region->segment.arena();
  auto region = std::make_unique<LaneRegion>();
  region->memory = add.region;
  region->bytes = {bytes.data(), bytes.size()};
  TERN_CHECK(surroundings_.transport.remember_memory(memory_of(region->bytes)).has_value());
  owner->regions.push_back(std::move(region));
}

// Of the entries that the client has published some may not have been taken, and may use it.
void LaneClients::run(const command::DropRegion& drop) {
  LaneClient* const owner = find(drop.client);
  if (owner == nullptr) return;
  for (auto& region : owner->regions) {
    if (region->memory->id != drop.region || region->is_dropping()) continue;
    region->entries_end = owner->taken + owner->submissions.size();
    ++regions_to_drop_;
  }
}

int LaneClients::drop_regions() {
  int dropped = 0;
  for (std::size_t i = 0; i < clients_.size() && regions_to_drop_ != 0; ++i) {
    LaneClient& client = *clients_[i];
    std::erase_if(client.regions, [&](const auto& region) {
      const bool entries_wait = !client.dropping && client.taken < region->entries_end;
      if (dropped == kRegionsPerTurn || !region->is_dropping() || entries_wait ||
          region->bytes.uses != 0) {
        return false;
      }
      let_go(*region);
      reports_.report(event::RegionDropped{client.memory->id, region->memory->id});
      ++dropped;
      return true;
    });
  }
  return dropped;
}

void LaneClients::let_go(const LaneRegion& region) {
  if (region.is_dropping()) --regions_to_drop_;
  surroundings_.transport.forget_memory(memory_of(region.bytes));
}

void LaneClients::request_drop(const ClientMemory& memory) {
  LaneClient* const client = find(memory.id);
  if (client == nullptr) return;
  client->dropping = true;
  client->rang = false;
  client->drop_requested = true;
}

LaneClient* LaneClients::find(std::uint64_t id) noexcept {
  for (auto& client : clients_) {
    if (client->memory->id == id) return client.get();
  }
  return nullptr;
}

LaneClient* LaneClients::droppable() noexcept {
  for (auto& client : clients_) {
    if (client->drop_requested && client->uses == 0) return client.get();
  }
  return nullptr;
}

void LaneClients::drop(LaneClient& client) {
  if (surroundings_.loop != nullptr) surroundings_.loop->unwatch(client.watch);
  surroundings_.transport.forget_memory(memory_of(client.arena));
  // One report says it all: clients that end together may have thousands of regions.
  for (const auto& region : client.regions) let_go(*region);
  reports_.report(event::ClientDropped{client.memory});
  std::erase_if(clients_, [&](const auto& one) { return one.get() == &client; });
}

bool LaneClients::any_dropping() const noexcept {
  return std::any_of(clients_.begin(), clients_.end(),
                     [](const auto& client) { return client->dropping; });
}

// ---- Entries ------------------------------------------------------------------------------------

bool LaneClients::take_entry(LaneClient& client, EntrySink& sink) {
  if (client.dropping || ends_without_pages(client)) return false;
  shm::SubmitEntry entry;
  const auto result = client.submissions.try_pop(entry);
  if (result == shm::RingResult::would_block) return false;
  if (result == shm::RingResult::corrupt) {
    misbehaves(client, "its submission ring is corrupt");
    return false;
  }
  ++client.taken;
  bump(counters_->entries, std::uint64_t{1});
  sink.on_entry(client, entry);
  return true;
}

void LaneClients::mark_before_move() noexcept {
  for (auto& client : clients_) client->before_move = client->taken + client->submissions.size();
}

bool LaneClients::has_older_than_move() const noexcept {
  return std::any_of(clients_.begin(), clients_.end(), [](const auto& client) {
    return !client->dropping && client->taken < client->before_move;
  });
}

void LaneClients::misbehaves(LaneClient& client, const char* how) {
  client.dropping = true;
  reports_.report(event::ClientMisbehaved{client.memory, Sentence(how)});
}

bool LaneClients::ends_without_pages(LaneClient& client) {
  if (!client.has_lost_pages()) return false;
  misbehaves(client,
             "a page of its arena is not there: nobody has touched it, or the kernel had no memory "
             "for it; memory from tern_alloc has its pages from the start");
  return true;
}

// ---- Completions --------------------------------------------------------------------------------

void LaneClients::tell(LaneClient& client, const Completion& completion) {
  // No op is said to have succeeded whose data may be those of no page.
  if (client.dropping || ends_without_pages(client)) return;
  shm::CompletionEntry entry{};
  entry.ticket = completion.ticket;
  entry.status = static_cast<std::int32_t>(completion.code);
  entry.bytes_sent = completion.bytes_sent;
  entry.source = completion.source;
  entry.elements = completion.elements;
  entry.encode_next_by = completion.encode_next_by;
  std::strncpy(entry.detail, completion.text, sizeof(entry.detail) - 1);
  if (client.completions.try_push(entry) != shm::RingResult::ok) {
    // The library keeps fewer ops in flight than the ring holds: this is not the library.
    return misbehaves(client, "its completion ring is full or corrupt");
  }
  client.rang = true;
}

void LaneClients::refuse(LaneClient& client, std::uint64_t ticket, Errc code, const char* text) {
  bump(counters_->bad_entries, std::uint64_t{1});
  tell(client, {ticket, code, text, 0});
  const std::uint64_t now = surroundings_.clock.now_ns();
  if (now < client.refusal_due_ns) return;
  client.refusal_due_ns = now + kRefusalEveryNs;
  reports_.report_for_log(event::EntryRefused{client.memory, code, Sentence(text)});
}

void LaneClients::ring_doorbells() {
  for (auto& client : clients_) {
    if (!client->rang || client->dropping) continue;
    client->rang = false;
    shm::ring_doorbell(client->memory->segment.header(), client->memory->notify.get());
  }
}

bool LaneClients::announce_sleep() {
  bool idle = true;
  for (auto& client : clients_) {
    if (client->dropping) continue;
    shm::announce_sleep(client->memory->segment.lane_rings(lane_));
    if (!client->submissions.empty()) idle = false;
  }
  return idle;
}

void LaneClients::end_sleep() {
  for (auto& client : clients_) {
    if (!client->dropping) shm::end_sleep(client->memory->segment.lane_rings(lane_));
  }
}

}  // namespace tern::daemon
