#include "daemon/lane/lane.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "base/bump.h"
#include "base/time_slice.h"

namespace tern::daemon {
namespace {

constexpr std::size_t kCommandsPerRound = 64;
constexpr int kEntriesPerRound = 32;
// Between two looks at the sockets at most so many chunks are encoded or decoded per group: the
// wire must not wait long for the codec.
constexpr int kActionsPerRound = 4;
constexpr std::uint64_t kTimerNs = 50'000'000;
// How long a lane sleeps where nothing is in flight.
constexpr std::uint64_t kIdleNs = 1'000'000'000;
// Of a turn, for pages that go back to the kernel.
constexpr std::uint64_t kDropNs = 1'000'000;
// Of a turn, for commands.
constexpr std::uint64_t kCommandsNs = 2'000'000;
// And for entries: as long as a chunk may take, so that who floods a lane with entries that come to
// nothing leaves most of it to others' chunks.
constexpr std::uint64_t kEntriesNs = 100'000;
// Beside the block that takes longest.
constexpr std::uint64_t kTurnBudgetNs = 10'000'000;

LaneGroups::Addressee counted(const LaneGroups::Addressee& addressee, LaneCounters& counters) {
  // Late frames of an ended epoch, mostly.
  if (!addressee.is_known) bump(counters.unknown_group_frames, std::uint64_t{1});
  return addressee;
}

// While several users are active, the groups of one have in a round together what each would have
// alone.
int run_groups_of(LaneGroups::OfUser& user, const JobSharing& sharing,
                  const CodecRoom::Spent& spent) {
  const LaneLoad& load = sharing.load();
  int done = 0;
  for (std::size_t i = 0; i < user.size() && spent.leaves_time(); ++i) {
    LaneGroup& group = user.next();
    const int taken = load.several_users() ? done : 0;
    const int most = load.turn(group.core().job(), kActionsPerRound) - taken;
    if (most <= 0) break;
    user.pass_on();
    done += group.run_actions(most, load, sharing.jobs());
  }
  return done;
}

}  // namespace

Lane::Lane(const LaneSettings& settings, const LaneClients::Surroundings& surroundings,
           wire::NodeId self, std::function<void()> wake_conductor)
    : transport_(surroundings.transport),
      wake_conductor_(std::move(wake_conductor)),
      resources_(settings, surroundings),
      links_(resources_, transport_, self, static_cast<FrameSink&>(*this)),
      sharing_(settings.lane, settings.port_bytes),
      turns_(resources_.clock, kTurnBudgetNs) {
  turns_.count_in(*resources_.counters);
  resources_.memory.tell(transport_);
}

Lane::~Lane() {
  for (Command command; commands_->pop(command);) {
    // What the lane would have taken over is its to free.
    if (const auto* adopt = std::get_if<command::AdoptConnection>(&command)) {
      const std::unique_ptr<net::Incoming> incoming(adopt->incoming);
    }
  }
  resources_.memory.untell(transport_);
}

void Lane::count_in(LaneCounters& counters, std::span<std::uint64_t> kinds) {
  resources_.counters = &counters;
  resources_.kinds.count_in(kinds);
  resources_.clients.count_in(counters);
  turns_.count_in(counters);
}

// An operation of a few KiB takes several of these, so each look at the clock counts: it is read
// after the transport, before settle() and at the end, and where there are commands, work of links
// or moves of state, which are rarer.
Lane::Round Lane::do_work(std::uint64_t begin_ns) {
  const Clock& clock = resources_.clock;
  if (!resources_.reports.has_room()) {
    if (resources_.reports.take_urgent() && wake_conductor_) wake_conductor_();
    is_at_rest_ = false;
    return {0, clock.now_ns()};
  }
  resources_.codec.spent = {};
  turns_.begin("commands", begin_ns);
  int work = run_commands(kCommandsPerRound);
  turns_.step("links", work > 0 ? clock.now_ns() : begin_ns);
  work += transport_.poll();
  const std::uint64_t polled_ns = clock.now_ns();
  const int ticked = links_.tick(polled_ns) + resources_.executor->poll();
  work += ticked;
  turns_.step("entries and chunks", ticked > 0 ? clock.now_ns() : polled_ns);
  work += drain_clients();
  if (!state_moves_.empty()) {
    turns_.step("moves of state", clock.now_ns());
    work += state_moves_.do_work(sharing_.load().active);
    turns_.step("chunks", clock.now_ns());
  }
  work += run_groups(begin_ns);
  // First what others wait for.
  if (work > 0) transport_.flush();
  resources_.clients.ring_doorbells();
  const std::uint64_t now = clock.now_ns();
  turns_.step("settling", now);
  work += settle(now);
  resources_.clients.ring_doorbells();
  if (resources_.reports.take_urgent() && wake_conductor_) wake_conductor_();
  const std::uint64_t end = clock.now_ns();
  if (work > 0) {
    bump(resources_.counters->busy_ns, end - begin_ns);
    is_at_rest_ = false;
  }
  turns_.allow(resources_.codec.spent.longest_ns);
  turns_.end(end, work > 0);
  return {work, end};
}

int Lane::run_groups(std::uint64_t now_ns) {
  sharing_.count(groups_.all(), now_ns);
  sharing_.bind_links(groups_.all(), links_, now_ns);
  resources_.codec.spent.chunks_ns = 0;
  const CodecRoom::Spent& spent = resources_.codec.spent;
  int work = 0;
  LaneGroups::OfUser* busy = nullptr;
  bool are_others_busy = false;
  for (std::size_t i = 0; i < groups_.users() && spent.leaves_time(); ++i) {
    LaneGroups::OfUser& user = groups_.take_turn();
    const int done = run_groups_of(user, sharing_, spent);
    if (done == 0) continue;
    are_others_busy = busy != nullptr;
    busy = &user;
    work += done;
  }
  // A user may be active and have nothing to do here: ops wait, or entries come to nothing. Whoever
  // alone has something to do leaves no part of the round to such users.
  const bool is_alone = busy != nullptr && !are_others_busy && sharing_.load().several_users();
  for (int turn = 1; is_alone && turn < kActionsPerRound && spent.leaves_time(); ++turn) {
    const int done = run_groups_of(*busy, sharing_, spent);
    if (done == 0) break;
    work += done;
  }
  if (work > 0) idle_pages_.touch();
  return work;
}

// ---- Clients ------------------------------------------------------------------------------------

int Lane::drain_clients() {
  int work = 0;
  LaneClients& clients = resources_.clients;
  std::optional<TimeSlice> slice;
  // By index: the commands that are run meanwhile may add clients.
  for (std::size_t i = 0; i < clients.size(); ++i) {
    LaneClient& client = clients[(first_client_ + i) % clients.size()];
    if (client.dropping || client.submissions.empty()) continue;
    const std::uint64_t until =
        client.taken + std::min<std::uint64_t>(client.submissions.size(), kEntriesPerRound);
    // The groups and tensors that these entries speak of are in commands older than the entries.
    const std::size_t older = commands_->read_available();
    const int ran = run_commands(older);
    work += ran;
    if (static_cast<std::size_t>(ran) < older) return work;
    if (!slice) slice.emplace(resources_.clock, kEntriesNs);
    // A corrupt ring has no size; taking from it says so to the conductor.
    if (client.submissions.corrupt()) clients.take_entry(client, *this);
    bool over = false;
    while (!over && client.taken < until && clients.take_entry(client, *this)) {
      ++work;
      over = slice->is_over();
    }
    if (over) {
      first_client_ = (first_client_ + i + 1) % clients.size();
      return work;
    }
  }
  return work;
}

void Lane::on_entry(LaneClient& client, const shm::SubmitEntry& entry) {
  LaneGroup* const group = groups_.by_number(entry.group);
  if (group == nullptr || !group->uses_client(client)) {
    return resources_.clients.refuse(client, entry.ticket, Errc::unknown_group,
                                     "no such group for this client");
  }
  group->submit(client, entry);
}

bool Lane::prepare_sleep() {
  bool idle = commands_->read_available() == 0 && transport_.prepare_sleep();
  idle = resources_.clients.announce_sleep() && idle;
  // After the announcement: who raises a watermark later wakes the lane.
  for (LaneGroup* group : groups_) idle = !group->inputs_move() && idle;
  if (idle) {
    bump(resources_.counters->sleeps, std::uint64_t{1});
  } else {
    end_sleep();
  }
  return idle;
}

std::uint64_t Lane::next_deadline_ns() const {
  const bool busy =
      resources_.clients.any_dropping() ||
      std::any_of(groups_.begin(), groups_.end(), [](LaneGroup* group) {
        return group->is_live() || group->news().is_let_go() || !group->news().is_ready();
      });
  // Without an op in flight there is nothing to time out but the links. Without a client nobody
  // begins one, and once all has been published there is nothing to wake for but events.
  std::uint64_t deadline = ~std::uint64_t{0};
  if (busy) {
    deadline = next_timer_ns_;
  } else if (client_count() != 0 || !links_.empty() || !is_at_rest_) {
    deadline = resources_.clock.now_ns() + kIdleNs;
  }
  deadline = links_.next_deadline_ns(deadline);
  for (const std::uint64_t due : {idle_pages_.deadline_ns(), state_moves_.deadline_ns()}) {
    if (due != 0) deadline = std::min(deadline, due);
  }
  return deadline;
}

// ---- Commands -----------------------------------------------------------------------------------

int Lane::run_commands(std::size_t most) {
  if (most == 0 || commands_->read_available() == 0) return 0;
  const TimeSlice slice(resources_.clock, kCommandsNs);
  std::size_t ran = 0;
  for (Command command; ran < most && commands_->pop(command);) {
    ++ran;
    std::visit(
        [this](const auto& one) {
          if constexpr (requires { resources_.clients.run(one); }) {
            resources_.clients.run(one);
          } else {
            run(one);
          }
        },
        command);
    if (slice.is_over()) break;
  }
  return static_cast<int>(ran);
}

void Lane::run(const command::AddClient& add) { resources_.clients.add(*add.client); }

void Lane::run(const command::DropClient& drop) {
  state_moves_.cancel(
      [&drop](const command::MoveState& one) { return one.move->client == drop.client->id; });
  resources_.clients.request_drop(*drop.client);
  next_timer_ns_ = 0;
}

void Lane::run(const command::AddGroup& add) {
  LaneGroup* const group = add.group;
  group->attach(resources_, links_, sharing_.job(group->setup().job));
  groups_.add(*group);
}

void Lane::run(const command::EndGroup& end) { end.group->end(end.code, end.text.c_str()); }

void Lane::run(const command::RankLeft& left) {
  left.group->let_leave(left.local_rank);
  next_timer_ns_ = 0;
}

void Lane::run(const command::RemoveGroup& remove) {
  state_moves_.cancel(
      [&remove](const command::MoveState& one) { return one.group == remove.group; });
  remove.group->news().let_go();
}

void Lane::run(const command::SetWeight& set) { set.group->core().job().weight = set.weight; }

void Lane::run(const command::AddTensor& add) { add.group->add_tensor(add.tensor); }

void Lane::run(const command::DropTensor& drop) {
  state_moves_.cancel(
      [&drop](const command::MoveState& one) { return one.move->tensor == drop.tensor; });
  drop.group->drop_tensor(drop.tensor, drop.release);
}

void Lane::run(const command::MoveState& move) { state_moves_.add(move); }

void Lane::run(const command::AdoptConnection& adopt) { links_.adopt(adopt); }

void Lane::run(const command::FailOp& fail) {
  fail.group->fail_key({fail.tensor, fail.sequence},
                       {fail.code, fail.about_rank, fail.text.c_str()});
}

void Lane::run(const command::Goodbye&) { links_.say_goodbye(); }

// ---- Frames -------------------------------------------------------------------------------------

bool Lane::place_frame(LanePeer& peer, const wire::FrameHeader& header, net::PayloadPlace& place) {
  LaneGroup* const group = counted(groups_.addressee(header, peer), *resources_.counters).group;
  if (group == nullptr) return true;  // looked at again when it has come whole
  peer.receiving.group = group;
  return group->place_payload(header.source_node, header, place);
}

bool Lane::take_frame(LanePeer& peer, const wire::FrameHeader& header,
                      const ReceivedPayload& payload, bool& known) {
  const auto [group, is_known, keeps_protocol] =
      counted(groups_.addressee(header, peer), *resources_.counters);
  known = group != nullptr;
  if (!known || group != peer.receiving.group) {
    abandon_frame(peer);  // the group ended while the payload came
    return keeps_protocol;
  }
  resources_.count_block(header.payload_bytes);
  if (payload.valid) return group->on_frame(header.source_node, header, payload.place);
  group->on_bad_payload(header.source_node, header);
  return true;
}

void Lane::abandon_frame(LanePeer& peer) {
  if (peer.receiving.group != nullptr) peer.receiving.group->on_abandoned(peer);
}

void Lane::on_link_lost(LanePeer& peer, Errc reason, const char* text, bool superseded) {
  for (LaneGroup* group : groups_) {
    const std::uint32_t node = group->core().node_of(peer);
    if (node == collective::kNoSlot) continue;
    // A new epoch may have begun on a link that the other side had given up before, which shows
    // only when it begins another; or either side just now closes the link because it was not used.
    // As long as nothing was said on it, nothing is lost with it.
    if (superseded && group->renew_untouched(node)) continue;
    // All links may go at once, and the ring of events has room for one loss of each group.
    if (!group->news().tell_loss()) continue;
    resources_.reports.report(event::LinkLost{group, node, reason, Sentence(text)});
  }
}

// ---- What can be let go -------------------------------------------------------------------------

int Lane::settle(std::uint64_t now_ns) {
  const bool timer = now_ns >= next_timer_ns_;
  if (timer) {
    next_timer_ns_ = now_ns + kTimerNs;
    links_.publish();
    publish_gauges();
    is_at_rest_ = true;
  }
  int work = settle_groups(now_ns, timer);
  while (LaneClient* client = resources_.clients.droppable()) {
    for (LaneGroup* group : groups_) group->forget(*client);
    resources_.clients.drop(*client);
    ++work;
  }
  work += resources_.clients.drop_regions();
  work += links_.settle(now_ns);
  sharing_.settle();
  if (idle_pages_.touched()) drop_idle_pages(now_ns);
  return work;
}

int Lane::settle_groups(std::uint64_t now_ns, bool timer) {
  int work = 0;
  for (LaneGroup* group : groups_) {
    if (timer && group->on_timer(now_ns)) ++work;
    work += group->settle();
    if (group->news().is_ready() || !group->core().all_links_open()) continue;
    group->news().tell_ready();
    resources_.reports.report(event::GroupReady{group});
    ++work;
  }
  for (std::size_t i = 0; i < groups_.all().size();) {
    LaneGroup* const group = groups_.all()[i];
    if (!group->news().is_let_go() || !group->core().ops().ended() || !group->idle()) {
      ++i;
      continue;
    }
    group->core().detach();
    groups_.remove(*group);
    resources_.reports.report(event::GroupRemoved{group});
    ++work;
  }
  return work;
}

void Lane::publish_gauges() {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  resources_.counters->ops_now.store(groups_.ops_in_flight(), kRelaxed);
  resources_.counters->unacked_now.store(resources_.memory.frames_in_flight(), kRelaxed);
  resources_.counters->waiting_now.store(resources_.memory.slabs_received(), kRelaxed);
}

void Lane::drop_idle_pages(std::uint64_t now_ns) {
  const bool busy = resources_.memory.frames_in_flight() > 0 || groups_.any_live_op();
  if (!idle_pages_.due(now_ns, busy, resources_.settings.keep_pages_ns)) {
    dropped_.reset();
    return;
  }
  if (!dropped_) {
    // A carrier that knows these pages must learn that others take their place.
    resources_.memory.untell(transport_);
    resources_.memory.drop_pages();
    resources_.codec.scratch.drop_pages();
    resources_.memory.tell(transport_);
    dropped_.emplace();
    return;
  }
  // Other nodes may have filled their room, which is hundreds of MiB of a large group.
  const TimeSlice slice(resources_.clock, kDropNs);
  while (groups_.drop_pages(*dropped_)) {
    if (slice.is_over()) return;
  }
  dropped_.reset();
  idle_pages_.dropped();
}

}  // namespace tern::daemon
