#include "daemon/tuning/tuning.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/lane/lane_group.h"
#include "daemon/membership/tensor_travel.h"
#include "daemon/service/log.h"
#include "plan/plans.h"
#include "wire/crc32c.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kLookEveryNs = 20'000'000;
constexpr std::uint64_t kActiveNs = 1'000'000'000;  // since the last op; after that lanes wake us
constexpr std::size_t kMostRates = 65'536;
constexpr std::uint64_t kSampleEveryNs = 20'000'000;
constexpr std::uint64_t kSampleEveryOps = 16;  // of tensors up to kSmallBytes
constexpr std::uint64_t kSmallBytes = 1 << 20;
// Share of the lanes' work that the shadow may take in the long run.
constexpr double kShadowShare = 0.003;
constexpr std::uint64_t kSaveSliceNs = 1'000'000;  // of a turn

// What tells lists of candidates apart.
std::uint16_t list_of(std::span<const tuner::Candidate> candidates) {
  std::string text;
  for (const tuner::Candidate& one : candidates) text += one.recipe + " ";
  return static_cast<std::uint16_t>(wire::crc32c(std::as_bytes(std::span(text))));
}

// Of a relayed op those of the direct one: nobody learns from it how fast links are.
tuner::OpLegs legs_of(const plan::Plan& plan) {
  return {.reduce = plan.reduces(),
          .broadcast = !plan.keeps_sums(),
          .one_owner = plan.ownership == plan::Ownership::root_node};
}

}  // namespace

Result<std::unique_ptr<Tuning>> Tuning::create(const TuningSettings& settings, const Clock& clock,
                                               Disposal& writing) {
  auto candidates = read_candidates(settings.candidates);
  if (!candidates) return tl::unexpected(candidates.error());
  auto policy = TuningPolicy::parse(settings.policy);
  if (!policy) return tl::unexpected(policy.error());
  std::unique_ptr<Tuning> tuning(
      new Tuning(settings, {clock, writing}, std::move(*candidates), std::move(*policy)));
  tuning->memory_.load(tuning->tuner_);
  return tuning;
}

Tuning::Tuning(const TuningSettings& settings, const Surroundings& around, Candidates candidates,
               TuningPolicy policy)
    : clock_(around.clock),
      recipes_(std::move(candidates.recipes)),
      policy_(std::move(policy)),
      tuner_(std::move(candidates.texts)),
      list_(list_of(tuner_.candidates())),
      memory_(settings.memory_file, around.clock, around.writing),
      logs_(settings.choice_directory, log_, around.writing) {}

Tuning::~Tuning() = default;

// ---- Policy

// A declaration goes before the policy, a policy before the default.
Status Tuning::resolve_level(const Tuned& tuned, tuner::Level& level,
                             std::optional<tuner::Bounds>& bounds) const {
  TuningAdvice advice = policy_.advice(tuned.job, tuned.name);
  if (!tuned.own_level.empty()) {
    advice = {};
    if (auto read = read_advice(tuned.own_level, advice); !read) return read;
  }
  level = tuned.lossy ? advice.level.value_or(tuner::Level::balanced) : tuner::Level::lossless;
  bounds.reset();
  if (tuned.lossy && (advice.loss || advice.residual)) bounds = advice.bounds(level);
  return {};
}

Status Tuning::set_policy(const std::string& text) {
  auto policy = TuningPolicy::parse(text);
  if (!policy) return tl::unexpected(policy.error());
  policy_ = std::move(*policy);
  ++policy_version_;
  for (auto& [number, tuned] : tensors_) {
    tuner::Level level{};
    std::optional<tuner::Bounds> bounds;
    if (resolve_level(tuned, level, bounds)) tuner_.set_bounds(number, level, bounds);
    publish(number, tuned);
  }
  return {};
}

// ---- Tensors

tuner::TensorInfo Tuning::info_of(const MemberGroup& group, const TensorState& state,
                                  const Tuned& tuned) const {
  const std::uint64_t chunk = group.chunk_elements(state.count, state.dtype);
  tuner::TensorInfo info;
  // Under which it is remembered: of each user apart.
  info.name = std::to_string(group.uid_of_user) + "/" + group.job + "/" + state.name;
  info.shape.bytes = state.count * dtype_bytes(state.dtype);
  info.shape.chunk_bytes = chunk * dtype_bytes(state.dtype);
  const collective::GroupShape& shape = group.lanes.front()->setup().shape;
  info.shape.eager_bytes = shape.eager_bytes;
  info.shape.eager_blocks = shape.eager_form >= collective::EagerForm::blocks;
  info.shape.announces_chunks = announces_chunks(group, state);
  info.shape.has_client_blocks = state.slots.has_value();
  info.shape.nodes = static_cast<std::uint32_t>(group.addresses.size());
  info.shape.lanes = group.lane_count;
  info.peers = tuned.peers;
  info.unusable = unusable_of(group, state);
  return info;
}

std::uint32_t Tuning::unusable_of(const MemberGroup& group, const TensorState& state) const {
  const std::uint64_t chunk = group.chunk_elements(state.count, state.dtype);
  const bool may_lose = codec::needs_residual(state.declared.recipe);
  std::uint32_t unusable = 0;
  for (std::size_t i = 0; i < recipes_->size(); ++i) {
    const codec::Recipe& recipe = (*recipes_)[i];
    const bool can_be_told = !state.slots || codec::canonical_text(recipe).size() <
                                                 sizeof(shm::TensorBlocksPacket::recipe);
    const bool fits = !codec::is_lossy(recipe) ||
                      (may_lose && can_be_told &&
                       codec::encode_bound(recipe, chunk) <= chunk * dtype_bytes(state.dtype));
    if (!fits) unusable |= 1u << i;
  }
  return unusable;
}

Result<std::shared_ptr<ReplayReading>> Tuning::reading_of(const std::string& log,
                                                          const MemberGroup& group,
                                                          const TensorState& state) const {
  auto terms = logs_.terms_of(log, group, state, unusable_of(group, state));
  if (!terms) return tl::unexpected(terms.error());
  std::vector<std::string> recipes;
  for (const tuner::Candidate& one : tuner_.candidates()) recipes.push_back(one.recipe);
  return std::make_shared<ReplayReading>(std::move(*terms), std::move(recipes), logs_.settled(log));
}

Status Tuning::begin(MemberGroup& group, TensorState& state, const std::string& level,
                     ReplayReading* replay) {
  const auto nodes = static_cast<std::uint32_t>(group.addresses.size());
  const std::uint64_t chunk = group.chunk_elements(state.count, state.dtype);
  // Numbers of chunks are highest where each rank's share is cut by itself.
  const std::uint64_t most = shm::most_chunk_elements(group.chunk_bytes, state.dtype);
  const std::uint64_t chunks =
      std::max((state.count + chunk - 1) / chunk, (state.count + most - 1) / most * group.size);
  const std::uint64_t number = next_number_++;
  Tuned tuned;
  tuned.name = state.name;
  tuned.job = group.job;
  tuned.group = group.uid.substr(0, 8);
  tuned.users = group.users;
  tuned.account = group.account;
  tuned.own_level = level;
  tuned.lanes = group.lane_count;
  tuned.lead_lane = static_cast<std::uint32_t>((state.id & shm::kSpreadMask) % group.lane_count);
  tuned.self = group.node;
  tuned.lossy = codec::needs_residual(state.declared.recipe);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    if (node != group.node) tuned.peers.push_back(group.addresses[node]);
  }
  tuner::TensorInfo info = info_of(group, state, tuned);
  if (auto resolved = resolve_level(tuned, info.level, info.bounds); !resolved) return resolved;
  // Its bytes are bounded by the quota of the residual that they belong to.
  state.tuning = std::make_unique<TensorTuning>(
      TensorTuning::Candidates{recipes_, list_},
      TensorTuning::Place{number, nodes, group.node, tuned.lossy ? chunks : 0});
  tuned.tuning = state.tuning.get();
  if (replay != nullptr) {
    state.tuning->replay_bytes = replay->bytes();
    auto lanes = replay->take();
    if (!lanes) {
      state.tuning.reset();
      return tl::unexpected(lanes.error());
    }
    state.tuning->replay = std::move(*lanes);
  }
  state.tuning->logged = logs_.open(group);
  state.tuning->sample_wanted = state.tuning->replay.empty();
  tuner_.add_tensor(number, std::move(info));
  publish(number, tensors_.emplace(number, std::move(tuned)).first->second);
  return {};
}

void Tuning::end(const TensorState& state) {
  if (!state.tuning) return;
  tensors_.erase(state.tuning->number());
  tuner_.remove_tensor(state.tuning->number());
}

void Tuning::publish(std::uint64_t number, Tuned& tuned) {
  const tuner::Choice& choice = tuner_.decide(number);
  ++decisions_;
  const tuner::TensorPolicy& policy = tuner_.policy(number);
  std::uint32_t allowed = 0;
  for (std::size_t i = 0; i < recipes_->size(); ++i) {
    if (policy.allowed(static_cast<tuner::CandidateIndex>(i))) allowed |= 1u << i;
  }
  tuned.tuning->allow(allowed);
  if (!tuned.published.empty() && tuned.published.back().choice == choice) return;
  if (policy.switches() != tuned.switches && !tuned.published.empty()) {
    tuned.switches = policy.switches();
    ++switches_;
    log_.write({LogTopic::recipes,
                tuned.account,
                spdlog::level::info,
                {.job = tuned.job, .group = tuned.group, .tensor = tuned.name}},
               "tensor {}: {}, was {}: {}", tuned.name, tuner_.choice_text(choice),
               tuner_.choice_text(tuned.published.back().choice), tuner_.view(number).reason);
  }
  const std::uint32_t version = tuned.published.empty() ? 1 : tuned.published.back().version + 1;
  if (tuned.published.size() == kHistory) tuned.published.pop_front();
  tuned.published.push_back({version, choice, {policy.contributions(), choice.broadcast}});
  tuned.tuning->publish(version, choice, policy.contributions());
  if (change_sink_) tell_change(number, tuned);
}

// ---- What has happened

void Tuning::observe_rates(const MemberGroup& group, const Tuned& tuned, const EndedOp& op) {
  const std::uint32_t lane = op.lane;
  std::size_t peer = 0;
  for (std::uint32_t node = 0; node < group.addresses.size(); ++node) {
    if (node == tuned.self) continue;
    const std::string& address = tuned.peers[peer++];
    const PeerRate seen = group.lanes[lane]->rates().of(node);
    if (seen.bytes_per_s <= 0.0) continue;
    // Each lane has its own share of the link.
    const double rate = seen.bytes_per_s * tuned.lanes;
    // Of nodes that are long gone, too. Each link's sample of now counts as news once more.
    if (last_rates_.size() >= kMostRates) last_rates_.clear();
    double& last = last_rates_[address + "#" + std::to_string(lane)];
    // The kernel keeps a sample until it has a better one: the same again is no news.
    tuner_.observe_rate(address, rate,
                        tuner_.evidence(op.number, op.sent, rate, seen.limited || rate == last));
    last = rate;
    tuner_.observe_peer(address, seen.inbound * tuned.lanes, seen.round_trip_ns,
                        seen.decode_strain);
  }
}

void Tuning::on_op(MemberGroup& group, const TensorState& state, const OpRecord& record) {
  if (!record.tuned || !state.tuning) return;
  const TunedRecord& sent = *record.tuned;
  const auto found = tensors_.find(state.tuning->number());
  if (found == tensors_.end() || record.lane != found->second.lead_lane) return;
  const Spent spent(*this);
  op_seen_ns_ = clock_.now_ns();
  Tuned& tuned = found->second;
  if (const plan::Plan* const plan = plan::find(record.kind);
      plan != nullptr && std::exchange(tuned.kind, record.kind) != record.kind) {
    tuner_.set_operation(found->first, plan->name, legs_of(*plan));
  }
  const auto used =
      std::find_if(tuned.published.begin(), tuned.published.end(),
                   [&sent](const Published& one) { return one.version == sent.choice; });
  if (used == tuned.published.end()) return;
  tuner::OpMeasurement measured;
  tuner::SentOp& op = measured.op;
  op.choice = used->choice;
  const bool has_lead = sent.lead < recipes_->size();
  // The leading node keeps to what it has said before, and goes on choosing.
  op.led = sent.led && tuned.self != kLeadingNode;
  if (has_lead) {
    op.choice.trial = sent.lead_is_trial;
    const tuner::PairOfLegs lead{sent.lead_contributions, sent.lead};
    // A client encodes alike for all nodes, however fast their links are.
    if (state.slots || !(used->legs == lead)) op.choice = all_by(lead, op.choice);
  }
  if (sent.unheeded < recipes_->size()) {
    tuner_.exclude(found->first, std::uint32_t{1} << sent.unheeded);
  }
  op.choice.probe_chunks = sent.probe_chunks;
  op.alike = sent.alike;
  // What rides in the announcement has no start of its own, or has been sent before it; for a
  // tensor that may, its other ops are timed alike, waits for other ranks included, which are the
  // same whatever the recipe.
  const tuner::OpShape& shape = tuner_.policy(found->first).shape();
  const bool small = shape.bytes <= shape.eager_bytes;
  const std::uint64_t began = small || sent.announced ? record.submitted_ns : record.started_ns;
  const bool plain = !sent.mixed;
  if (began != 0 && plain && !sent.one_sided) op.ns = static_cast<double>(record.ended_ns - began);
  op.client_ns = static_cast<double>(sent.client_ns);
  observe_rates(group, tuned, {found->first, op, record.lane});
  op.error = sent.error;
  // Beside a client a lane encodes results, and copies blocks.
  measured.encoded_bytes = plain && !state.slots ? sent.encoded_bytes : 0;
  measured.encode_ns = static_cast<double>(sent.encode_ns);
  tuner_.observe_op(found->first, measured);
  if (!std::exchange(tuned.to_decide, true)) to_decide_.push_back(found->first);
}

void Tuning::on_choice_used(const MemberGroup& group, const TensorState& state, std::uint32_t lane,
                            const event::ChoiceInUse& in_use) {
  const ChoiceUsed& used = in_use.choice;
  const auto found = state.tuning ? tensors_.find(state.tuning->number()) : tensors_.end();
  if (found == tensors_.end() || !logs_.open(group)) return;
  const Tuned& tuned = found->second;
  // Version 0 is raw for all: see TensorTuning::read().
  tuner::Choice choice{std::vector<tuner::CandidateIndex>(tuned.peers.size()), 0, 0};
  if (used.lead != ChoiceUsed::kVersion) {
    choice.probe_chunks = used.probe_chunks;
    choice = all_by({used.lead_contributions, used.lead}, std::move(choice));
  } else if (used.version != 0) {
    const auto known =
        std::find_if(tuned.published.begin(), tuned.published.end(),
                     [&used](const Published& one) { return one.version == used.version; });
    if (known == tuned.published.end()) return;
    choice = known->choice;
  }
  tuner::LoggedOp op;
  op.tensor = state.name;
  op.use = in_use.use;
  op.lane = lane;
  op.probe_chunks = choice.probe_chunks;
  op.broadcast = tuner_.candidates()[choice.broadcast].recipe;
  for (const auto index : choice.reduce) op.reduce.push_back(tuner_.candidates()[index].recipe);
  logs_.write(group, op);
}

void Tuning::on_chunk_choice(const MemberGroup& group, const TensorState& state, std::uint32_t lane,
                             const event::ChunkChoice& chosen) {
  if (!logs_.open(group)) return;
  tuner::LoggedChunk chunk;
  chunk.tensor = state.name;
  chunk.use = chosen.use;
  chunk.lane = lane;
  chunk.leg = static_cast<std::uint32_t>(chosen.leg);
  chunk.chunk = chosen.chunk;
  chunk.recipe = tuner_.candidates()[chosen.candidate].recipe;
  logs_.write(group, chunk);
}

// Short ops come by the dozen: one decision for all of them.
void Tuning::decide() {
  for (const std::uint64_t number : to_decide_) {
    const auto found = tensors_.find(number);
    if (found == tensors_.end()) continue;
    found->second.to_decide = false;
    publish(number, found->second);
  }
  to_decide_.clear();
}

int Tuning::take_results() {
  if (shadow_ == nullptr) return 0;
  int taken = 0;
  for (ShadowResult result; shadow_->pop(result); ++taken) {
    if (result.tensor == 0) {
      tuner_.calibrate(result.sample);
      continue;
    }
    tuner_.observe_sample(result.tensor, result.sample);
    const auto found = tensors_.find(result.tensor);
    if (found == tensors_.end()) continue;
    found->second.sampled_ns = clock_.now_ns();
    // The first of all ops may take long where nothing is known: it need not wait for its end.
    const bool last = result.sample.candidate + 1u == recipes_->size();
    if (last && tuner_.policy(result.tensor).ops() == 0) publish(found->first, found->second);
  }
  return taken;
}

// One tensor after the other, as often as the shadow's budget allows.
void Tuning::want_samples() {
  if (shadow_ == nullptr || tensors_.empty()) return;
  const std::uint64_t now = clock_.now_ns();
  const auto busy_ns = static_cast<double>(lanes_.busy_ns());
  if (static_cast<double>(shadow_->cpu_ns()) > kShadowShare * busy_ns) return;
  auto next = tensors_.lower_bound(next_sample_);
  if (next == tensors_.end()) next = tensors_.begin();
  next_sample_ = next->first + 1;
  Tuned& tuned = next->second;
  if (!tuned.tuning->replay.empty() || now < tuned.sampled_ns + kSampleEveryNs) return;
  // Of a small tensor the copy is a good part of an op.
  const tuner::TensorPolicy& policy = tuner_.policy(next->first);
  if (policy.shape().bytes <= kSmallBytes && policy.ops() > kSampleEveryOps &&
      policy.ops() < tuned.ops_at_sample + kSampleEveryOps) {
    return;
  }
  tuned.ops_at_sample = policy.ops();
  tuned.tuning->sample_wanted.store(true, std::memory_order_relaxed);
}

// A lane that has finished a short op does not wake the conductor, which would take a core from the
// clients that go on now: for as long as ops are tuned, it comes by itself.
std::uint64_t Tuning::next_deadline_ns() const {
  const std::uint64_t now = clock_.now_ns();
  const bool active = op_seen_ns_ != 0 && now < op_seen_ns_ + kActiveNs;
  return active ? now + kLookEveryNs : ~std::uint64_t{0};
}

int Tuning::do_work() {
  log_.tell_left_out();
  if (tensors_.empty() && shadow_ == nullptr) return 0;
  const Spent spent(*this);
  int work = take_results();
  decide();
  if (const auto lane = lanes_.since_last(clock_.now_ns())) tuner_.observe_lane(*lane);
  want_samples();
  memory_.tell_problem();
  logs_.tell_problems();
  if (memory_.is_due()) {
    memory_.save_some(tuner_, TimeSlice(clock_, kSaveSliceNs));
    if (memory_.is_due()) ++work;  // it goes on with the next turn
  }
  return work;
}

}  // namespace tern::daemon
