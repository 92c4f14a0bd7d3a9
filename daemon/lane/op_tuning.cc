#include "daemon/lane/op_tuning.h"

#include <algorithm>
#include <utility>

#include "base/bump.h"
#include "collective/op_plan.h"
#include "daemon/lane/shadow.h"

namespace tern::daemon {

using collective::OpId;

namespace {

// AnnounceBody::lead_is_trial.
constexpr std::uint8_t kIsTrial = 1;
constexpr std::uint8_t kIsForNext = 2;
constexpr std::uint8_t kMadeEarly = 4;
constexpr unsigned kLegsShift = 4;  // how the legs differ
static_assert(tuner::kMaxCandidates <= 16, "four bits tell two candidates apart");

}  // namespace

// ---- An op's life -------------------------------------------------------------------------------

void OpTuning::begin(OpId op, const ClientEncoding& made) {
  const Announced announced = choices_[op].announced;
  Choice& choice = choices_[op] = Choice{};
  choice.announced = announced;
  const TensorTuning* const tuning = this->tuning(op);
  if (tuning == nullptr) return;
  const auto by_node = candidates_.write(op);
  if (tuning->replay.empty()) {
    choice.version = tuning->read(by_node, choice.aside);
    if (has_client_blocks(op)) {
      // Contributions are made, by what the client was told last.
      choice.made = made.by;
      tuned(op).client_ns = made.ns;
      const tuner::CandidateIndex own = by_node[core_.self()];
      std::ranges::fill(by_node, made.by.recipe);
      by_node[core_.self()] = own;
    }
    return;
  }
  choice.source = Source::replay;
  std::fill(by_node.begin(), by_node.end(), tuner::kRaw);
  const ReplayedLane& replayed = tuning->replay[lane()];
  if (const auto* record = replayed.op(use(op))) {
    std::ranges::copy(replayed.by_node(*record), by_node.begin());
    choice.aside.probe_chunks = record->probe_chunks;
  }
}

bool OpTuning::compresses(OpId op) const noexcept {
  const OpEncoding& encoding = core_.lane_op(op).encoding;
  const collective::Op& about = core_.op(op);
  if (encoding.tuning == nullptr) {
    return encoding.lossy || (encoding.lossless && about.plan->may_lose);
  }
  if (std::ranges::any_of(candidates_.read(op), [](auto one) { return one != tuner::kRaw; })) {
    return true;
  }
  // A tensor of one round, which is this lane's, sends its pending residual.
  const bool small =
      core_.bytes(op, about.announced_first.count) <= core_.setup().shape.eager_bytes;
  return small && encoding.lossy && encoding.tuning->any_residual_pending(columns(op));
}

bool OpTuning::is_announced(OpId op) const noexcept {
  const collective::Op& about = core_.op(op);
  return about.announces_chunks() ||
         (about.is_eager() && collective::may_bring_block(about, core_.setup().shape));
}

tuner::CandidateIndex OpTuning::contributions(OpId op) const noexcept {
  const Choice& choice = choices_[op];
  if (!choice.overruled && !has_client_blocks(op)) return choice.aside.contributions;
  return candidate(op, (core_.self() + 1) % core_.nodes());
}

std::uint32_t OpTuning::columns(OpId op) const noexcept {
  return core_.op(op).plan->has_shares() ? core_.setup().size : core_.nodes();
}

bool OpTuning::is_led_early(OpId op) const noexcept {
  return is_announced(op) || has_client_blocks(op) || tuned(op).encoded_early;
}

bool OpTuning::leads_next(OpId op) const noexcept {
  return is_announced(op) || choices_[op].announced.about == Announced::About::next_op;
}

void OpTuning::announce(OpId op, wire::AnnounceBody& body) noexcept {
  Choice& choice = choices_[op];
  if (tuning(op) == nullptr || choice.source == Source::replay) return;
  if (core_.self() != kLeadingNode) {
    if (has_client_blocks(op)) body.lead_is_trial = kMadeEarly;
    return;
  }
  Lead lead{candidate(op, core_.self()), choice.aside.contributions, choice.aside.trial,
            tuning(op)->list()};
  Announced& said = choice.announced;
  const bool is_of_next = said.about == Announced::About::next_op || is_led_early(op);
  if (is_of_next) {
    const bool is_first = said.about != Announced::About::next_op;
    if (is_first) said.lead = tuning(op)->newest();
    said.about = Announced::About::next_op;
    lead = said.lead;
  }
  body.lead = static_cast<std::uint8_t>(lead.results + 1);
  const auto apart = static_cast<std::uint8_t>(lead.results ^ lead.contributions);
  body.lead_is_trial = static_cast<std::uint8_t>(apart << kLegsShift);
  if (lead.trial) body.lead_is_trial |= kIsTrial;
  // Of one whose contributions travel with it everybody knows that.
  if (is_of_next && !is_announced(op)) body.lead_is_trial |= kIsForNext;
  body.candidates = lead.list;
}

void OpTuning::hear_lead(OpId op, const wire::AnnounceBody& body) noexcept {
  const auto results = static_cast<std::uint8_t>(body.lead - 1);  // none: tuner::kNoCandidate
  const auto contributions = static_cast<std::uint8_t>(results ^ body.lead_is_trial >> kLegsShift);
  Announced& announced = choices_[op].announced;
  announced.lead = {results, contributions, (body.lead_is_trial & kIsTrial) != 0, body.candidates};
  const bool is_of_next = (body.lead_is_trial & kIsForNext) != 0;
  announced.about = is_of_next ? Announced::About::next_op : Announced::About::this_op;
}

void OpTuning::hear_early(OpId op, const wire::AnnounceBody& body) noexcept {
  if ((body.lead_is_trial & kMadeEarly) != 0) choices_[op].announced.is_early = true;
}

void OpTuning::pass_on_lead(OpId op) noexcept {
  if (tuning(op) == nullptr) return;
  const Announced& announced = choices_[op].announced;
  if (announced.is_early) tuned(op).encoded_early = true;
  if (leads_next(op) || has_client_blocks(op)) tuned(op).next_lead = announced.lead;
}

std::uint32_t OpTuning::next_by_client(OpId op) noexcept {
  const TensorTuning* const tuning = this->tuning(op);
  if (tuning == nullptr || !has_client_blocks(op)) return 0;
  Lead lead = tuned(op).next_lead;
  if (!may_follow(*tuning, lead)) lead = tuning->newest();
  const bool known = lead.results != tuner::kNoCandidate;
  tuned(op).told_client = known ? lead.contributions : tuner::kRaw;
  return shm::EncodedBy{tuned(op).told_client, tuning->probe_chunks()}.packed();
}

void OpTuning::watch_client(OpId op) noexcept {
  constexpr std::uint8_t kMostUnheeded = 4;
  TensorLane::Tuned& tuned = this->tuned(op);
  const bool heeds =
      tuned.told_client == tuner::kRaw || choices_[op].made.recipe == tuned.told_client;
  if (heeds || tuned.told_client != tuned.unheeded) tuned.times_unheeded = 0;
  if (heeds) return;
  tuned.unheeded = tuned.told_client;
  if (++tuned.times_unheeded == kMostUnheeded) choices_[op].found.unheeded = tuned.unheeded;
}

// ---- What it is sent by -------------------------------------------------------------------------

void OpTuning::settle(OpId op) {
  Choice& choice = choices_[op];
  TensorTuning* const tuning = this->tuning(op);
  if (tuning == nullptr || choice.phase == Phase::settled) return;
  choice.phase = Phase::settled;
  choice.lead = leads_next(op) ? tuned(op).next_lead : choice.announced.lead;
  if (!tuning->take(core_.op(op).plan->number)) {
    choice.source = Source::none;
    std::ranges::fill(candidates_.write(op), tuner::kRaw);
    return;
  }
  if (choice.source == Source::replay) return;
  follow(op);
  if (tuning->logged) log(op);
}

void OpTuning::follow(OpId op) {
  Choice& choice = choices_[op];
  Lead legs{candidate(op, core_.self()), choice.aside.contributions, false, 0};
  const Lead own = legs;
  if (may_follow(*tuning(op), choice.lead)) {
    choice.source = Source::lead;
    legs = choice.lead;
  }
  if (has_client_blocks(op)) {
    const shm::EncodedBy& made = choice.made;
    watch_client(op);
    legs.contributions = made.recipe;
    choice.aside.probe_chunks = made.raw_first;
  }
  choice.overruled = legs.results != own.results || legs.contributions != own.contributions;
  if (choice.overruled) send_by(op, legs);
}

void OpTuning::send_by(OpId op, const Lead& legs) {
  const auto by_node = candidates_.write(op);
  std::ranges::fill(by_node, legs.contributions);
  by_node[core_.self()] = legs.results;
}

// A log says from which use on how ops are sent; one that is settled out of turn needs a line.
void OpTuning::log(OpId op) {
  const Choice& choice = choices_[op];
  TensorState& tensor = *core_.lane_op(op).tensor;
  TensorLane::Tuned& tuned = tensor.lanes[lane()].tuned;
  ChoiceUsed used{choice.version};
  if (choice.overruled || has_client_blocks(op)) {
    used = {0, candidate(op, core_.self()), contributions(op), choice.aside.probe_chunks};
  }
  const bool in_turn = std::exchange(tuned.settled_use, use(op)) + 1 == use(op);
  const bool same = std::exchange(tuned.settled_choice, used.packed()) == used.packed();
  if (in_turn && same) return;
  core_.resources().reports.report(event::ChoiceInUse{&group_, tensor.id, use(op), used});
}

const codec::Recipe& OpTuning::recipe(OpId op, const Block& block) {
  TensorTuning* const tuning = this->tuning(op);
  if (tuning == nullptr) return core_.lane_op(op).encoding.recipe;
  settle(op);
  Choice& choice = choices_[op];
  const bool is_clients = block.leg == wire::Leg::reduce && has_client_blocks(op);
  if (is_clients) return tuning->recipe(candidate(op, block.node));
  // The first chunks of each owner, whatever the order in which they go out.
  const bool first_leg = block.leg == wire::Leg::reduce || core_.op(op).plan->moves();
  if (first_leg && block.number / columns(op) < choice.aside.probe_chunks) {
    return tuning->recipe(tuner::kRaw);
  }
  const tuner::CandidateIndex chosen = candidate(op, block.node);
  if (choice.source == Source::replay) {
    const std::uint64_t place = ReplayedLane::place_of(block.number, block.leg);
    const auto* const other = tuning->replay[lane()].chunk(use(op), place);
    return tuning->recipe(other != nullptr ? other->candidate : chosen);
  }
  if (choice.source != Source::own || tuning->version() == choice.version) {
    return tuning->recipe(chosen);
  }
  const tuner::CandidateIndex now = tuning->now(block.node);
  if (now != chosen) {
    choice.found.mixed = true;
    if (tuning->logged) {
      core_.resources().reports.report(event::ChunkChoice{&group_, core_.lane_op(op).tensor->id,
                                                          use(op), block.number, block.leg, now});
    }
  }
  return tuning->recipe(now);
}

void OpTuning::compare(OpId op, const wire::BlockHeader& header) noexcept {
  const TensorTuning* const tuning = this->tuning(op);
  if (tuning == nullptr || (header.flags & wire::kBlockNonfiniteRaw) != 0) return;
  bool& alike = choices_[op].found.alike;
  const bool eager = core_.op(op).is_eager();
  const std::uint32_t place = eager ? (core_.self() + 1) % core_.nodes() : core_.self();
  alike = alike && tuning->makes(candidate(op, place), header);
}

std::optional<TunedRecord> OpTuning::describe(OpId op) const noexcept {
  const Choice& choice = choices_[op];
  if (tuning(op) == nullptr || choice.source == Source::none) return std::nullopt;
  TunedRecord record;
  record.choice = choice.version;
  record.alike = choice.found.alike;
  record.led = choice.source == Source::lead;
  if (record.led || has_client_blocks(op)) {
    record.lead = candidate(op, core_.self());
    record.lead_contributions = contributions(op);
  }
  record.lead_is_trial = record.led ? choice.lead.trial : choice.aside.trial;
  record.probe_chunks = choice.aside.probe_chunks;
  record.unheeded = choice.found.unheeded;
  record.mixed = choice.found.mixed;
  return record;
}

// ---- Samples ------------------------------------------------------------------------------------

bool OpTuning::owns_all(OpId op) const noexcept {
  const auto& chunks = core_.op(op).chunks;
  for (std::uint32_t node = 0; node < core_.nodes(); ++node) {
    if (node != core_.self() && chunks.owned(node) > 0) return false;
  }
  return true;
}

// The last chunk of a tensor may have a few elements, whose block is mostly header and whose loss
// is none: they say nothing of the others. Where each rank's share is cut by itself, a node may
// have short ones alone, so that all are good there.
bool OpTuning::is_short(OpId op, std::uint32_t number) const noexcept {
  constexpr std::uint32_t kParts = 4;  // of a whole chunk, or of a sample: one at least
  const plan::Plan& plan = *core_.op(op).plan;
  if (plan.has_shares() || plan.has_pairs() || plan.has_relays()) return false;
  const auto& chunks = core_.op(op).chunks;
  return chunks.size(number) < std::min(chunks.size(0), Shadow::kSampleElements) / kParts;
}

void OpTuning::offer_contribution(OpId op, std::uint32_t number) {
  if (tuning(op) == nullptr) return;
  const auto& chunks = core_.op(op).chunks;
  // The client has the others' elements, and results may lie in its own chunks' slots: but not
  // before anything has begun.
  if (has_client_blocks(op)) {
    if (core_.op(op).announces_chunks() && chunks.owned(core_.self()) != 0) offer_own(op, 0);
    return;
  }
  if (is_short(op, number)) return;
  const ChunkPart part{chunks.begin(number), chunks.size(number)};
  offer(op, {part, &NodeValues::floats, core_.lane_op(op).tensor->codec.sender(part.begin)});
}

// Without what is owed for it, which is of results.
void OpTuning::offer_own(OpId op, std::uint32_t index) {
  const auto& chunks = core_.op(op).chunks;
  const std::uint32_t number = chunks.chunk(core_.self(), index);
  if (is_short(op, number) && chunks.owned(core_.self()) > 1) return;
  offer(op, {{chunks.begin(number), chunks.size(number)}, &NodeValues::floats, nullptr});
}

void OpTuning::offer_moved(OpId op, const ChunkPart& part) {
  if (tuning(op) == nullptr) return;
  offer(op, {part, &NodeValues::moved_floats, core_.lane_op(op).tensor->codec.sender(part.begin)});
}

void OpTuning::offer_grant(OpId op, std::uint32_t index) {
  if (tuning(op) == nullptr || !(owns_all(op) || has_client_blocks(op))) return;
  offer_own(op, index);
}

void OpTuning::offer_whole(OpId op) {
  if (tuning(op) == nullptr || has_client_blocks(op)) return;
  if (core_.op(op).plan->moves()) {
    const plan::Range own = core_.lane_ops().ranks(op)[0].extents.input;
    return offer_moved(op, {own.begin, static_cast<std::uint32_t>(own.count)});
  }
  const auto count = static_cast<std::uint32_t>(core_.op(op).announced_first.count);
  offer(op, {{0, count}, &NodeValues::floats, core_.lane_op(op).tensor->codec.sender(0)});
}

void OpTuning::offer(OpId op, const Sample& sample) {
  const ChunkPart& part = sample.part;
  Shadow* const shadow = core_.resources().shadow;
  TensorTuning& tuning = *this->tuning(op);
  if (shadow == nullptr || !tuning.sample_wanted.load(std::memory_order_relaxed) ||
      part.elements == 0 || !inputs_.has_all(op) || !shadow->has_room(lane())) {
    return;
  }
  tuning.sample_wanted.store(false, std::memory_order_relaxed);
  const ChunkPart first{part.begin, std::min(part.elements, Shadow::kSampleElements)};
  const auto dtype = static_cast<DType>(core_.op(op).announced_first.dtype);
  shadow->offer(lane(), {tuning.number(), dtype, (values_.*sample.values)(op, first),
                         sample.residual, core_.lane_op(op).encoding.state_scale});
  bump(core_.resources().counters->samples, std::uint64_t{1});
}

}  // namespace tern::daemon
