#include "daemon/lane/lane_group.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/bump.h"
#include "base/check.h"
#include "collective/op_plan.h"
#include "daemon/lane/fail_body.h"
#include "daemon/lane/touch_pages.h"
#include "plan/cancel.h"

namespace tern::daemon {

using collective::Action;
using collective::ActionKind;
using collective::OpId;

namespace {

// In a job that runs well, ranks of a node are not so far apart, and nobody need be told.
constexpr std::uint64_t kLateNs = 100'000'000;
// Blocks of one group that an executor may have at once.
constexpr std::uint32_t kBlocksInFlight = 256;

}  // namespace

LaneGroup::LaneGroup(GroupSetup setup, EagerRoom room)
    : room_(std::move(room)),
      core_(std::move(setup), *this),
      admission_(core_.setup()),
      copies_(core_),
      clients_(core_),
      announcements_(core_, {codec_, path_, tuning_, upkeep_, clients_, verifier_},
                     room_.announced()),
      codec_(core_.ops(), core_.lane_ops(), announcements_.values(),
             {core_.setup().number, core_.setup().seed, core_.setup().size}),
      path_(codec_, *this, kBlocksInFlight),
      tuning_(core_, codec_.values(), copies_, *this),
      reduce_(core_, tuning_, path_, announcements_.values()),
      results_(core_, {tuning_, path_, reduce_, verifier_}),
      verifier_(core_.setup().shape, core_.setup().size, core_.ops().table().slots()),
      upkeep_(core_.ops(), core_.lane_ops()),
      ledger_(core_, codec_.blocks(), tuning_, *this),
      rates_(core_.nodes()),
      point_to_point_(core_, *this, room_.offered()),
      releases_(core_, *this) {
  leaving_.reserve(clients_.all().size());
}

void LaneGroup::attach(LaneResources& resources, PeerSource& peers, LaneJob& job) {
  core_.attach(resources, peers, job);
  reduce_.attach();
  codec_.blocks().attach(resources.codec, resources.trace, *resources.counters, resources.clock);
  path_.use(*resources.executor);
  point_to_point_.attach(resources);
  clients_.attach(resources.clients);
}

bool LaneGroup::uses_client(const LaneClient& client) const { return clients_.has(client); }

void LaneGroup::forget(const LaneClient& client) { clients_.forget(client); }

bool LaneGroup::is_live() const {
  return !core_.ops().table().idle() || !point_to_point_.mailbox().idle();
}

bool LaneGroup::idle() const {
  return !is_live() && leaving_.empty() &&
         std::none_of(core_.peers().begin(), core_.peers().end(), [this](const LanePeer* peer) {
           return peer != nullptr && peer->receiving.group == this;
         });
}

// ---- Submission ---------------------------------------------------------------------------------

void LaneGroup::submit(LaneClient& client, const shm::SubmitEntry& entry) {
  if (plan::cancels(entry)) return cancel(client, entry);
  op_seen_ = true;
  LaneClients& clients = core_.resources().clients;
  const std::uint32_t local_rank = clients_.local_rank(client);
  const OpAdmission::Submitter submitter{
      setup().shape.ranks[core_.self()][local_rank], client.arena, core_.tensor(entry.tensor),
      client.region(entry.input_region), client.region(entry.output_region)};
  OpAdmission::Admitted admitted = admission_.admit(entry, submitter);
  if (const char* problem = admitted.checked.problem) {
    return clients.refuse(client, entry.ticket, admitted.checked.code, problem);
  }
  collective::GroupOps& ops = core_.ops();
  if (ops.ended()) {
    const collective::Departures& departures = ops.departures();
    return clients.tell(client, {entry.ticket, departures.code(), departures.text().data(), 0});
  }
  if (admitted.checked.plan->passes()) {
    return point_to_point_.submit(
        {client, local_rank, *admitted.checked.plan, &admitted.op.encoding,
         (admitted.body.flags & wire::kAnnounceLossy) != 0},
        entry);
  }
  if (admitted.op.encoding.lossy && admitted.checked.plan->moves() &&
      !core_.all_have(wire::kFeatureLossyMoves)) {
    admitted.lose_nothing();
  }
  admitted.op.submitted_ns = core_.now_ns();
  const collective::OpKey key{entry.tensor, entry.sequence};
  const OpId known = ops.find(key);
  const bool first = known == collective::kNoSlot || ops.op(known).submitted == 0;
  OpId op = collective::kNoSlot;
  const auto result = ops.on_submit(
      {local_rank, key, admitted.body, entry.priority, admitted.op.submitted_ns, admitted.counts},
      op);
  if (const Refusal refusal = refusal_of(result); refusal.code != Errc::ok) {
    return clients.refuse(client, entry.ticket, refusal.code, refusal.text);
  }
  if (first) begin(op, admitted);
  const OpRank rank = admitted.rank(entry, submitter);
  rank.hold_regions();
  core_.join(op, local_rank, rank);
  copies_.begin({op, local_rank}, entry, client);
  ++client.uses;
  if (admitted.op.slots() != nullptr && setup().shape.verify &&
      !core_.all_have(wire::kFeatureClientBlocks)) {
    // The others hear of it: they would wait for this rank.
    ops.fail(op, {Errc::unsupported, submitter.rank,
                  "verify compares blocks here, which the daemon of a node of the group is too old "
                  "for: declare the tensor without client_blocks"});
  }
}

// By the first rank of this node that has submitted it.
void LaneGroup::begin(OpId op, const OpAdmission::Admitted& admitted) {
  const OpEncoding& encoding = admitted.op.encoding;
  if (TensorState* const tensor = admitted.op.tensor) {
    ++tensor->lanes[setup().shape.lane].uses;
    if (encoding.lossy && !admitted.counts.empty()) {
      upkeep_.remember_counts(*tensor, admitted.counts, admitted.body.counts_crc);
    }
  }
  core_.begin(op, admitted.op);
  tuning_.begin(op, admitted.client);
  const collective::OpKey& key = core_.op(op).key;
  if (setup().shape.counts(key.tensor, key.sequence)) {
    codec_.blocks().count_contributions(op, admitted.client.energies);
  }
  // One that has failed before anybody said what it is has no plan.
  if (!core_.op(op).failed() && tuning_.compresses(op)) {
    core_.ops().compress(op, encoding.lossy && codec::scans_tensor(encoding.recipe));
  }
}

void LaneGroup::cancel(const LaneClient& client, const shm::SubmitEntry& entry) {
  const std::uint32_t local_rank = clients_.local_rank(client);
  const std::uint32_t number = setup().shape.ranks[core_.self()][local_rank];
  char text[64];
  std::snprintf(text, sizeof(text), "cancelled by rank %u", number);
  const collective::Failure cancelled{Errc::cancelled, number, text};
  for (OpId op = 0; op < core_.ops().table().slots(); ++op) {
    if (!core_.ops().table().in_use(op)) continue;
    const OpRank& rank = core_.lane_ops().ranks(op)[local_rank];
    if (!rank.present || rank.told || rank.ticket != entry.ticket) continue;
    return core_.ops().fail(op, cancelled);
  }
  point_to_point_.cancel(client, entry.ticket, cancelled);
}

// ---- Actions ------------------------------------------------------------------------------------

int LaneGroup::run_actions(int budget, const LaneLoad& load, std::size_t jobs) {
  const FrameMemory& memory = core_.resources().memory;
  const auto room = [&] { return memory.room(core_.job(), load, core_.nodes(), jobs); };
  int done = 0;
  copies_.look();
  const auto run_passes = [&] {
    constexpr int kSteps = PointToPoint::kStepsPerAction;
    const int steps =
        point_to_point_.run(kSteps * (budget - done), [&room] { return room().contributions; });
    done += (steps + kSteps - 1) / kSteps;
  };
  // In turns, so that neither ops nor sends wait for the end of the other.
  passes_first_ = !passes_first_;
  if (passes_first_) run_passes();
  // Some of them in every round, however many other actions there are.
  const auto has_slices = [this] { return verifier_.is_busy() || upkeep_.is_clearing(); };
  if (done < budget && has_slices()) {
    work_slice();
    ++done;
  }
  for (; done < budget && core_.resources().codec.spent.leaves_time(); ++done) {
    const Action action = core_.ops().next(room(), copies_);
    if (action.kind == ActionKind::none) break;
    carry_out(action);
  }
  for (; done < budget && has_slices() && core_.resources().codec.spent.leaves_time(); ++done) {
    work_slice();
  }
  if (!passes_first_) run_passes();
  return done;
}

void LaneGroup::carry_out(const Action& action) {
  switch (action.kind) {
    case ActionKind::none:
      break;
    case ActionKind::announce:
      return clients_.fail_if_pages_are_lost(action.op) ? core_.ops().done(action)
                                                        : announcements_.announce(action);
    case ActionKind::grant:
      return reduce_.grant(action);
    case ActionKind::scan:
      return clients_.fail_if_pages_are_lost(action.op) ? core_.ops().done(action)
                                                        : reduce_.scan(action);
    case ActionKind::contribute:
      return clients_.fail_if_pages_are_lost(action.op) ? core_.ops().done(action)
                                                        : reduce_.contribute(action);
    case ActionKind::begin:
    case ActionKind::begin_add:
    case ActionKind::add:
      return reduce_.add(action);
    case ActionKind::finish:
      return results_.finish(action);
    case ActionKind::finish_parked:
      return results_.finish_parked(action);
    case ActionKind::send_on:
      touch_pages(results_.held(action));
      return clients_.fail_if_pages_are_lost(action.op) ? core_.ops().done(action)
                                                        : results_.send_on(action);
    case ActionKind::publish:
      return results_.publish(action);
    case ActionKind::reduce_eager:
      return announcements_.reduce(action);
    case ActionKind::verify:
      verifier_.begin(action);
      return work_slice();
    case ActionKind::fail_remote:
      return send_failure(action);
    case ActionKind::tell_submitted:
      return core_.tell_submitted(action);
    case ActionKind::complete:
      return complete(action.op);
  }
}

// The others are told of a failure, and may have forgotten the op: nothing of it is sent any more.
void LaneGroup::on_block(const BlockRequest& request, const BlockCompletion& completion) {
  if (completion.form == BlockForm::input) {
    // It is sent from where it lies, and nobody has read it.
    const ChunkPart part = codec_.blocks().part(request.op, request.number);
    const NodeValues& values = codec_.values();
    touch_pages({request.verb == BlockVerb::publish ? values.moved_input(request.op, part)
                                                    : values.plain(request.op, part),
                 completion.bytes});
  }
  const bool failed = clients_.fail_if_pages_are_lost(request.op);
  if (!failed && request.verb == BlockVerb::encode && completion.problem != nullptr) {
    fail_for_block(request, completion.problem);
  }
  if (!failed) copies_.on_block(request, completion, clients_.all());
  switch (request.verb) {
    case BlockVerb::gather:
      return announcements_.gathered(request, completion);
    case BlockVerb::scan:
      return core_.ops().done(request.action);
    case BlockVerb::encode:
      return request.action.kind == ActionKind::announce
                 ? announcements_.gathered(request, completion)
                 : reduce_.contributed(request, completion);
    case BlockVerb::begin:
    case BlockVerb::begin_add:
    case BlockVerb::add:
      return reduce_.added(request, completion);
    case BlockVerb::finish:
    case BlockVerb::finish_parked:
    case BlockVerb::publish:
      return results_.made(request, completion);
    case BlockVerb::deliver:
      return results_.delivered(request, completion);
    case BlockVerb::reduce:
      return announcements_.reduced(request, completion);
  }
}

// The block that the rank's client has encoded. It goes nowhere.
void LaneGroup::fail_for_block(const BlockRequest& request, const char* problem) {
  const std::uint32_t rank = setup().shape.ranks[core_.self()][0];
  char text[160];
  std::snprintf(text, sizeof(text), "rank %u's block of chunk %u, in its slot: %s", rank,
                request.number, problem);
  bump(core_.resources().counters->bad_blocks, std::uint64_t{1});
  core_.ops().fail(request.op, {Errc::invalid_argument, rank, text});
}

// A tenth of a millisecond.
constexpr std::size_t kSliceBytes = std::size_t{1} << 20;

// Of what goes over all of a tensor and is no block's.
void LaneGroup::work_slice() {
  const std::uint64_t begin = core_.now_ns();
  const bool clears = upkeep_.is_clearing();
  const OpId cleared = clears ? upkeep_.clear_some(kSliceBytes) : collective::kNoSlot;
  const auto [action, checksums] =
      clears ? Verifier::Taken() : verifier_.take_some(codec_.blocks(), kSliceBytes);
  core_.resources().codec.spent.charge(core_.now_ns() - begin);
  if (cleared != collective::kNoSlot && core_.unpin(cleared)) finalize(cleared);
  if (action.kind == ActionKind::none) return;
  if (!checksums.empty()) {
    core_.tell_all(core_.header(wire::FrameKind::verify, action.op), std::as_bytes(checksums));
  }
  core_.ops().done(action);
}

void LaneGroup::send_failure(const Action& action) {
  const collective::Op& failed = core_.op(action.op);
  const FailBody told({failed.status, failed.about_rank, failed.text});
  core_.tell_all(core_.header(wire::FrameKind::op_fail, action.op), told.payload());
  core_.ops().done(action);
}

// ---- The end of an op ---------------------------------------------------------------------------

void LaneGroup::complete(OpId op) {
  const collective::Op& ended = core_.op(op);
  reduce_.release_all(op);
  announcements_.release(op);
  if (ended.failed()) {
    // Ranks that come later find it as it was left.
    const std::uint64_t resets = upkeep_.lose(op);
    // With the epoch all of the state ends: the next declaration counts that.
    if (resets != 0 && !core_.ops().ended()) {
      TensorState& tensor = *core_.lane_op(op).tensor;
      bump(tensor.lanes[setup().shape.lane].counts.resets, resets);
      core_.resources().reports.report(event::StateReset{this, tensor.id, resets});
    }
    // Where nobody will ever submit it, its failure would be remembered for nothing.
    const std::uint32_t lanes = core_.lane_ops().lanes(op);
    if (setup().shape.lanes > 1 && !core_.ops().ended() && lanes != 0 &&
        core_.lane_ops().is_awaited(op)) {
      core_.resources().reports.report(event::OpFailed{this, ended.key.tensor, ended.key.sequence,
                                                       ended.status, ended.about_rank, lanes,
                                                       Sentence(ended.text)});
    }
  }
  // What contributions have left out the client has, until it imports that.
  const LaneOp& data = core_.lane_op(op);
  if (data.slots() != nullptr && data.encoding.lossy) {
    data.tensor->residual_with_client.store(true, std::memory_order_relaxed);
  }
  // The tensor's next op is announced after this one's end on all nodes.
  if (!ended.failed() && !ended.is_eager()) tuning_.pass_on_lead(op);
  // The senders' memory is free when they are told that it has arrived.
  if (ended.plan != nullptr && ended.plan->is_one_way() && !ended.is_eager()) {
    for (LanePeer* const peer : core_.peers()) {
      if (peer != nullptr && !peer->is_lost()) peer->link->acknowledge_soon();
    }
  }
  // Ranks hear of the failure, and the tensor's next op begins, when its state is what it will be.
  if (upkeep_.is_clearing(op)) {
    core_.pin(op);
    return work_slice();
  }
  if (core_.lane_op(op).pins == 0) finalize(op);
}

void LaneGroup::finalize(OpId op) {
  if (core_.lane_ops().is_awaited(op)) tell_end(op);
  core_.ops().release(op);
  if (core_.ops().table().in_use(op)) return;
  core_.forget(op);
  copies_.forget(op);
  upkeep_.forget(op);
  codec_.blocks().forget(op);
  tuning_.forget(op);
  verifier_.forget(op);
}

void LaneGroup::tell_end(OpId op) {
  const collective::Op& ended = core_.op(op);
  Verifier::Verdict verdict;
  if (ended.is_verifying() && !ended.failed()) verdict = verifier_.compare(op);
  const OpLedger::Ending ending{ended.failed() ? ended.status : verdict.code,
                                ended.failed() ? ended.text : verdict.text, core_.now_ns()};
  const LaneOp& data = core_.lane_op(op);
  ledger_.count(op, ending);
  const auto ranks = core_.lane_ops().ranks(op);
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    const OpRank& rank = ranks[i];
    if (!rank.present || rank.told) continue;
    core_.told(op, i);
    if (clients_[i] == nullptr) continue;
    --clients_[i]->uses;
    rank.let_regions_go();
    core_.resources().clients.tell(
        *clients_[i],
        {rank.ticket, ending.code, ending.text, data.bytes_sent, 0, 0, tuning_.next_by_client(op)});
  }
  // The rest keeps nobody waiting.
  if (data.encoding.tuning != nullptr) {
    rates_.look(data, ended.announces_chunks(), core_.peers(), ending.now_ns);
  }
  ledger_.record(op, ending);
}

void LaneGroup::frame_acked(OpId op) {
  if (core_.unpin(op)) finalize(op);
}

// ---- Ends ---------------------------------------------------------------------------------------

void LaneGroup::end(Errc code, const char* text) {
  upkeep_.mark_all_doubtful();
  core_.ops().end(code, text);
  point_to_point_.end(code, text);
}

void LaneGroup::fail_key(const collective::OpKey& key, const collective::Failure& failure) {
  if (!core_.ops().ended()) core_.ops().fail_key(key, failure);
}

void LaneGroup::add_tensor(TensorState* tensor) {
  core_.add_tensor(tensor);
  releases_.keep_tensor(tensor);
}

void LaneGroup::drop_tensor(TensorState* tensor, std::uint32_t release) {
  core_.drop_tensor(tensor->id);
  releases_.add_tensor(tensor, release);
  settle();
}

// What it submitted before it left counts as submitted.
void LaneGroup::let_leave(std::uint32_t local_rank) {
  LaneClient* const client = clients_[local_rank];
  const std::uint64_t end = client == nullptr ? 0 : client->taken + client->submissions.size();
  leaving_.push_back({local_rank, end});
}

bool LaneGroup::renew_untouched(std::uint32_t node) {
  if (op_seen_) return false;
  point_to_point_.before_renewal(node);
  core_.renew_peer(node);
  return true;
}

bool LaneGroup::on_timer(std::uint64_t now_ns) {
  bool moved = false;
  core_.ops().tell_late(now_ns, kLateNs);
  if (setup().op_timeout_ns != 0 && !core_.ops().ended()) {
    moved = copies_.expire(now_ns, setup().op_timeout_ns);
    core_.ops().expire(now_ns, setup().op_timeout_ns);
  }
  moved = point_to_point_.expire(now_ns) || moved;
  gauges_.publish(core_.ops(), point_to_point_.mailbox());
  return moved;
}

int LaneGroup::settle() {
  const auto leaves = [this](const Leaving& one) {
    const LaneClient* const client = clients_[one.local_rank];
    if (client != nullptr && !client->dropping && client->taken < one.entries_end) return false;
    if (!core_.ops().ended()) {
      core_.ops().on_rank_left(one.local_rank);
      point_to_point_.rank_left(one.local_rank);
    }
    releases_.add_rank(one.local_rank);
    return true;
  };
  const auto left = static_cast<int>(std::erase_if(leaving_, leaves));
  return left +
         releases_.settle([this](std::uint32_t rank) { clients_.forget_rank(rank); },
                          [this](std::uint32_t rank) { return point_to_point_.uses_rank(rank); });
}

}  // namespace tern::daemon
