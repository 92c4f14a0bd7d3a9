#include "daemon/lane/lane.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "daemon/lane/lane_group.h"
#include "shm/wakeup.h"

namespace tern::daemon {
namespace {

constexpr int kCommandsPerRound = 64;
constexpr int kEntriesPerRound = 32;
// Between two looks at the sockets at most so many chunks are encoded or decoded per group: the
// wire must not wait long for the codec.
constexpr int kActionsPerRound = 4;
constexpr std::uint64_t kTimerNs = 50'000'000;
// Events must not be lost; with less room than this the lane does nothing new until the conductor
// has read. A round reports at most a few per op it ends.
constexpr std::size_t kEventReserve = 2048;
// A client may be refused at every entry; the log says it once a second.
constexpr std::uint64_t kRefusalEveryNs = 1'000'000'000;
constexpr std::size_t kRecordWake = 3072;
// To wake another thread costs more than a small op: the conductor looks by itself while ops are
// tuned (Tuning::next_deadline_ns), is woken if it may have stopped, and for ops that took another
// time than usual.
constexpr std::uint64_t kTunerWakeNs = 1'000'000'000;
constexpr std::uint64_t kSurpriseNs = 2'000'000;

// Slabs and arenas are host memory, which no transport refuses.
void remember_host(net::Transport& transport, std::span<const std::byte> bytes) {
  TERN_CHECK(transport.remember_memory({bytes, net::MemoryKind::host}).has_value());
}

void forget_host(net::Transport& transport, std::span<const std::byte> bytes) {
  transport.forget_memory({bytes, net::MemoryKind::host});
}

}  // namespace

Lane::Lane(const LaneSettings& settings, const Clock& clock, net::Transport& transport,
           wire::NodeId self, net::EventLoop* loop, std::function<void()> wake_conductor)
    : settings_(settings),
      clock_(clock),
      transport_(transport),
      self_(self),
      loop_(loop),
      wake_conductor_(std::move(wake_conductor)),
      // A chunk of f16 has an f32 accumulator of twice its size.
      accumulators_(2 * settings.result_slabs, 2 * settings.chunk_bytes),
      receive_slabs_(settings.receive_slabs, settings.block_bytes()),
      send_slabs_(settings.send_slabs, settings.block_bytes()),
      result_slabs_(settings.result_slabs, settings.block_bytes()),
      scratch_(2, 2 * settings.chunk_bytes) {
  const std::uint32_t tokens = settings.send_slabs + settings.result_slabs;
  tokens_.resize(tokens);
  free_tokens_.resize(tokens);
  wire_events_.resize(tokens);
  for (std::uint32_t i = 0; i < tokens; ++i) free_tokens_[i] = tokens - 1 - i;
  remember_slabs();
}

// Those that frames are sent from.
void Lane::remember_slabs() {
  for (const SlabPool* pool : {&accumulators_, &send_slabs_, &result_slabs_}) {
    remember_host(transport_, pool->memory());
  }
}

void Lane::forget_slabs() {
  for (const SlabPool* pool : {&accumulators_, &send_slabs_, &result_slabs_}) {
    forget_host(transport_, pool->memory());
  }
}

Lane::~Lane() {
  for (Command command; commands_->pop(command);) {
    // What the lane would have taken over is its to free.
    if (const auto* adopt = std::get_if<command::AdoptConnection>(&command)) {
      const std::unique_ptr<net::Incoming> incoming(adopt->incoming);
    }
  }
  for (auto& peer : peers_) {
    if (peer->link) peer->link->close();
  }
  for (const auto& client : clients_) forget_host(transport_, client->arena);
  forget_slabs();
}

int Lane::do_work() {
  if (events_->write_available() < kEventReserve) return 0;
  const std::uint64_t begin = clock_.now_ns();
  int work = run_commands();
  work += transport_.poll();
  for (auto& peer : peers_) {
    if (peer->link && !peer->lost) work += peer->link->tick();
  }
  work += drain_clients();
  finish_state_moves(false);
  work += run_groups(begin);
  work += settle();
  ring_doorbells();
  if (reported_ && wake_conductor_) wake_conductor_();
  reported_ = false;
  if (work > 0) bump(counters_->busy_ns, clock_.now_ns() - begin);
  return work;
}

int Lane::run_groups(std::uint64_t now_ns) {
  for (LaneGroup* group : groups_) {
    if (group->ops().live_ops() == 0) continue;
    group->job().busy_ns = now_ns;
    if (group->setup().node_ids.size() > 1) group->job().wire_ns = now_ns;
  }
  load_ = {};
  for (const auto& job : jobs_) load_.count(*job, now_ns);
  active_jobs_->publish(settings_.lane, load_.wire_jobs);
  share_links(now_ns);
  int work = 0;
  for (LaneGroup* group : groups_) {
    const int actions = group->run_actions(load_.turn(group->job(), kActionsPerRound));
    pages_touched_ = pages_touched_ || actions > 0;
    work += actions;
  }
  return work;
}

// ---- Clients ------------------------------------------------------------------------------------

LaneClient* Lane::client(std::uint64_t id) {
  for (auto& client : clients_) {
    if (client->memory->id == id) return client.get();
  }
  return nullptr;
}

int Lane::drain_clients() {
  int work = 0;
  // By index: the commands that are run meanwhile may add clients.
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    LaneClient& client = *clients_[i];
    if (client.dropping || client.submissions.empty()) continue;
    // The groups and tensors that these entries speak of are in commands older than the entries.
    const std::uint64_t until =
        client.taken + std::min<std::uint64_t>(client.submissions.size(), kEntriesPerRound);
    while (const int done = run_commands()) work += done;
    if (client.submissions.corrupt()) take_entry(client);  // has no size; says so to the conductor
    while (client.taken < until && take_entry(client)) ++work;
  }
  return work;
}

void Lane::finish_state_moves(bool at_once) {
  if (state_moves_.empty()) return;
  const auto has_older = [](const auto& client) {
    return !client->dropping && client->taken < client->before_move;
  };
  if (!at_once && std::any_of(clients_.begin(), clients_.end(), has_older)) return;
  for (const command::MoveState& command : state_moves_) {
    event::StateMoved outcome{command.group, command.move, Errc::ok, {}};
    command.group->move_state(*command.move, outcome);
    report(outcome);
  }
  state_moves_.clear();
}

// False: there is none.
bool Lane::take_entry(LaneClient& client) {
  if (client.dropping) return false;
  shm::SubmitEntry entry;  // a copy of our own: what is checked is what is used
  const auto result = client.submissions.try_pop(entry);
  if (result == shm::RingResult::would_block) return false;
  if (result == shm::RingResult::corrupt) {
    client.dropping = true;
    report(event::ClientMisbehaved{client.memory, Sentence("its submission ring is corrupt")});
    return false;
  }
  ++client.taken;
  bump(counters_->entries, std::uint64_t{1});
  const auto found = groups_by_number_.find(entry.group);
  if (found == groups_by_number_.end() || !found->second->uses_client(client)) {
    refuse(client, entry.ticket, Errc::unknown_group, "no such group for this client");
    return true;
  }
  found->second->submit(client, entry);
  return true;
}

void Lane::tell(LaneClient& client, std::uint64_t ticket, Errc code, const char* text,
                std::uint64_t bytes_sent) {
  if (client.dropping) return;
  shm::CompletionEntry entry{};
  entry.ticket = ticket;
  entry.status = static_cast<std::int32_t>(code);
  entry.bytes_sent = bytes_sent;
  std::strncpy(entry.detail, text, sizeof(entry.detail) - 1);
  if (client.completions.try_push(entry) != shm::RingResult::ok) {
    // The library keeps fewer ops in flight than the ring holds: this is not the library.
    client.dropping = true;
    report(
        event::ClientMisbehaved{client.memory, Sentence("its completion ring is full or corrupt")});
    return;
  }
  client.rang = true;
}

void Lane::refuse(LaneClient& client, std::uint64_t ticket, Errc code, const char* text) {
  bump(counters_->bad_entries, std::uint64_t{1});
  tell(client, ticket, code, text, 0);
  const std::uint64_t now = clock_.now_ns();
  if (now < client.refusal_due_ns) return;
  client.refusal_due_ns = now + kRefusalEveryNs;
  report_for_log(event::EntryRefused{client.memory, code, Sentence(text)});
}

void Lane::ring_doorbells() {
  for (auto& client : clients_) {
    if (!client->rang || client->dropping) continue;
    client->rang = false;
    shm::ring_doorbell(client->memory->segment.header(), client->memory->notify.get());
  }
}

bool Lane::prepare_sleep() {
  bool idle = commands_->read_available() == 0 && transport_.prepare_sleep();
  for (auto& client : clients_) {
    if (client->dropping) continue;
    shm::announce_sleep(client->memory->segment.lane_rings(settings_.lane));
    if (!client->submissions.empty()) idle = false;
  }
  if (idle) {
    bump(counters_->sleeps, std::uint64_t{1});
  } else {
    end_sleep();
  }
  return idle;
}

void Lane::end_sleep() {
  for (auto& client : clients_) {
    if (!client->dropping) shm::end_sleep(client->memory->segment.lane_rings(settings_.lane));
  }
}

std::uint64_t Lane::next_deadline_ns() const {
  std::uint64_t deadline = next_timer_ns_;
  bool busy = false;
  for (const LaneGroup* group : groups_) {
    if (group->ops().live_ops() > 0 || group->remove_requested || !group->ready_reported)
      busy = true;
  }
  for (const auto& client : clients_) busy = busy || client->dropping;
  // Without an op in flight there is nothing to time out but the links.
  if (!busy) deadline = clock_.now_ns() + 1'000'000'000;
  for (const auto& peer : peers_) {
    if (peer->link && !peer->lost) deadline = std::min(deadline, peer->link->next_deadline_ns());
  }
  if (drop_pages_ns_ != 0) deadline = std::min(deadline, drop_pages_ns_);
  return deadline;
}

// ---- Commands -----------------------------------------------------------------------------------

int Lane::run_commands() {
  int work = 0;
  Command command;
  while (work < kCommandsPerRound && commands_->pop(command)) {
    run_command(command);
    ++work;
  }
  return work;
}

void Lane::run_command(const Command& command) {
  std::visit([this](const auto& one) { run(one); }, command);
}

void Lane::run(const command::AddClient& add) {
  auto client = std::make_unique<LaneClient>();
  client->memory = add.client;
  client->submissions =
      shm::RingConsumer<shm::SubmitEntry>(add.client->segment.submit_ring(settings_.lane));
  client->completions =
      shm::RingProducer<shm::CompletionEntry>(add.client->segment.completion_ring(settings_.lane));
  if (loop_ != nullptr) {
    const int eventfd = add.client->eventfds[settings_.lane].get();
    client->watch = loop_->watch(eventfd, [eventfd] { shm::drain_eventfd(eventfd); });
  }
  client->arena = client->memory->segment.arena();
  remember_host(transport_, client->arena);
  clients_.push_back(std::move(client));
}

void Lane::run(const command::DropClient& drop) {
  finish_state_moves(true);  // while all that they refer to is there
  LaneClient* const client = this->client(drop.client->id);
  if (client == nullptr) return;
  client->dropping = true;
  client->rang = false;
  next_timer_ns_ = 0;
  client->drop_requested = true;
}

void Lane::run(const command::AddGroup& add) {
  add.group->attach(*this);
  groups_.push_back(add.group);
  groups_by_token_[add.group->setup().token] = add.group;
  groups_by_number_[add.group->setup().number] = add.group;
}

void Lane::run(const command::EndGroup& end) { end.group->end(end.code, end.text.c_str()); }

void Lane::run(const command::RankLeft& left) {
  // What the rank submitted before it left counts as submitted.
  for (auto& client : clients_) {
    while (take_entry(*client)) {
    }
  }
  left.group->rank_left(left.local_rank);
  next_timer_ns_ = 0;
}

void Lane::run(const command::RemoveGroup& remove) {
  finish_state_moves(true);
  remove.group->remove_requested = true;
}

void Lane::run(const command::SetWeight& set) { set.group->job().weight = set.weight; }

void Lane::run(const command::AddTensor& add) { add.group->add_tensor(add.tensor); }

void Lane::run(const command::DropTensor& drop) {
  finish_state_moves(true);
  drop.group->drop_tensor(drop.tensor);
}

// What the clients submitted before somebody asked for the state counts as in flight. It is taken
// in its turn, because it may speak of tensors in commands that come after this one.
void Lane::run(const command::MoveState& move) {
  for (auto& client : clients_) client->before_move = client->taken + client->submissions.size();
  state_moves_.push_back(move);
}

void Lane::run(const command::AdoptConnection& adopt) { this->adopt(adopt); }

void Lane::run(const command::FailOp& fail) {
  if (fail.group->ops().ended()) return;
  fail.group->fail_key({fail.tensor, fail.sequence}, fail.code, fail.about_rank, fail.text.c_str());
}

void Lane::run(const command::Goodbye&) {
  for (auto& peer : peers_) {
    if (peer->link && !peer->lost) peer->link->say_goodbye();
  }
}

// ---- What can be let go -------------------------------------------------------------------------

int Lane::settle() {
  int work = 0;
  const std::uint64_t now = clock_.now_ns();
  const bool timer = now >= next_timer_ns_;
  if (timer) {
    next_timer_ns_ = now + kTimerNs;
    publish_peers();
    publish_gauges();
  }
  for (LaneGroup* group : groups_) {
    if (timer) group->on_timer(now);
    work += group->settle();
    if (!group->ready_reported && group->all_links_open()) {
      group->ready_reported = true;
      report(event::GroupReady{group});
      ++work;
    }
  }
  for (std::size_t i = 0; i < groups_.size();) {
    LaneGroup* group = groups_[i];
    if (!group->remove_requested || !group->ops().ended() || !group->idle()) {
      ++i;
      continue;
    }
    group->detach();
    groups_by_token_.erase(group->setup().token);
    groups_by_number_.erase(group->setup().number);
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i));
    report(event::GroupRemoved{group});
    ++work;
  }
  for (std::size_t i = 0; i < clients_.size();) {
    LaneClient& client = *clients_[i];
    if (!client.drop_requested || client.uses != 0) {
      ++i;
      continue;
    }
    for (LaneGroup* group : groups_) group->forget(client);
    if (loop_ != nullptr) loop_->unwatch(client.watch);
    forget_host(transport_, client.arena);
    report(event::ClientDropped{client.memory});
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
    ++work;
  }
  work += settle_links(now);
  std::erase_if(jobs_,
                [](const auto& job) { return job->groups == 0 && job->held == LaneJob::Held{}; });
  if (pages_touched_) drop_idle_pages(now);
  return work;
}

// One deadline after the last op and none afterwards: a daemon at rest is not woken for this.
void Lane::drop_idle_pages(std::uint64_t now_ns) {
  bool busy = contributions_in_flight_ + results_in_flight_ > 0;
  for (const LaneGroup* group : groups_) busy = busy || group->ops().live_ops() > 0;
  if (busy) {
    drop_pages_ns_ = 0;
    return;
  }
  if (drop_pages_ns_ == 0) drop_pages_ns_ = now_ns + settings_.keep_pages_ns;
  if (now_ns < drop_pages_ns_) return;
  // A carrier that knows these pages must learn that others take their place.
  forget_slabs();
  for (SlabPool* pool :
       {&accumulators_, &receive_slabs_, &send_slabs_, &result_slabs_, &scratch_}) {
    pool->drop_pages();
  }
  remember_slabs();
  for (LaneGroup* group : groups_) group->drop_pages();
  pages_touched_ = false;
  drop_pages_ns_ = 0;
}

bool Lane::has_room_for_log() const { return events_->write_available() >= kEventReserve; }

// Whether the conductor is to be woken for it.
bool Lane::is_urgent(const event::OpEnded& ended) {
  // Records of ops that went well can wait for the conductor's next round.
  if (ended.code != Errc::ok || events_->write_available() < kRecordWake) return true;
  if (ended.record.tuned == 0) return false;
  const std::uint64_t wait = ended.record.surprising != 0 ? kSurpriseNs : kTunerWakeNs;
  if (ended.record.ended_ns < tuner_woken_ns_ + wait) return false;
  tuner_woken_ns_ = ended.record.ended_ns;
  return true;
}

void Lane::record(const event::OpEnded& ended) {
  if (events_->write_available() < kEventReserve) {
    bump(counters_->dropped_records, std::uint64_t{1});
    return;
  }
  push(ended);
  reported_ = is_urgent(ended) || reported_;
}

}  // namespace tern::daemon
