#pragma once

// The conductor's part of tuning: it tells tuner::Tuner what lanes and shadow have measured,
// publishes its choices to the lanes, logs them, and explains them to the operator. docs/tuner.md.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "daemon/access/scope.h"
#include "daemon/control/row_source.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/lane_settings.h"
#include "daemon/lane/shadow.h"
#include "daemon/membership/member_group.h"
#include "daemon/service/user_log.h"
#include "daemon/tuning/candidates.h"
#include "daemon/tuning/choice_logs.h"
#include "daemon/tuning/lane_work.h"
#include "daemon/tuning/recipe_change.h"
#include "daemon/tuning/replay_reading.h"
#include "daemon/tuning/tuner_memory.h"
#include "daemon/tuning/tuning_policy.h"
#include "tuner/tuner.h"

namespace tern::daemon {

struct TuningSettings {
  std::vector<std::string> candidates;  // recipes; empty: the usual ones
  std::string policy;
  std::string choice_directory;  // of logs of choices; empty: none are written or replayed
  std::string memory_file;       // what was learnt, across restarts; empty: nowhere
};

class Tuning {
 public:
  // What is given outlives it. `writing` has the thread that waits for the disk.
  static Result<std::unique_ptr<Tuning>> create(const TuningSettings& settings, const Clock& clock,
                                                Disposal& writing);
  ~Tuning();

  std::shared_ptr<const CandidateRecipes> recipes() const { return recipes_; }
  // Where samples come from; without one the tuner knows nothing and stays raw. Outlives this.
  void set_shadow(Shadow* shadow) { shadow_ = shadow; }
  // What a lane does is counted there, which outlives this.
  void add_lane(const LaneCounters& counters) { lanes_.add(counters); }
  // Is told whenever a tensor is sent otherwise from now on.
  void set_change_sink(std::function<void(const RecipeChange&)> sink) {
    change_sink_ = std::move(sink);
  }

  // ---- Policy ----
  const TuningPolicy& policy() const { return policy_; }
  std::uint64_t policy_version() const { return policy_version_; }  // another after every change
  // Of tensors that are tuned at present and from now on.
  Status set_policy(const std::string& text);

  // ---- Tensors ----
  // A reading of the log of that name, for whoever may wait: with a declaration of this tensor it
  // is given to begin().
  Result<std::shared_ptr<ReplayReading>> reading_of(const std::string& log,
                                                    const MemberGroup& group,
                                                    const TensorState& state) const;
  // `level` is the declaration's text, perhaps empty. `replay`: null, and the tuner chooses.
  // REQUIRES: the reading is done.
  Status begin(MemberGroup& group, TensorState& state, const std::string& level,
               ReplayReading* replay);
  void end(const TensorState& state);
  void group_ended(const MemberGroup& group) { logs_.end(group); }

  // ---- What has happened ----
  void on_op(MemberGroup& group, const TensorState& state, const OpRecord& record);
  void on_choice_used(const MemberGroup& group, const TensorState& state, std::uint32_t lane,
                      const event::ChoiceInUse& in_use);
  void on_chunk_choice(const MemberGroup& group, const TensorState& state, std::uint32_t lane,
                       const event::ChunkChoice& chosen);
  int do_work();
  std::uint64_t next_deadline_ns() const;
  void save() { memory_.save(tuner_); }

  // ---- For the operator ----
  std::string choice_text(const TensorState& state) const;
  // The source asks this.
  RowSource report(const Scope& scope) const;
  // Others' tensors are unknown, as those that nobody has.
  Result<nlohmann::json> explain(const std::string& tensor, const Scope& scope) const;
  std::array<std::uint64_t, 5> counter_values() const;

 private:
  struct Published {
    std::uint32_t version = 0;
    tuner::Choice choice;
    tuner::PairOfLegs legs;  // of it, to nodes that the op waits for
  };
  struct Tuned {
    TensorTuning* tuning = nullptr;
    std::string name, job, group;
    std::vector<std::uint32_t> users;  // of the group
    std::uint32_t account = 0;         // as MemberGroup's
    std::string own_level;             // of the declaration
    std::uint32_t lead_lane = 0;
    std::uint32_t lanes = 1;
    std::uint32_t self = 0;
    std::vector<std::string> peers;
    std::deque<Published> published;
    std::uint64_t switches = 0;
    std::uint64_t sampled_ns = 0;
    std::uint64_t ops_at_sample = 0;
    std::uint16_t kind = 0;  // of its ops, a plan's number; 0: there was none
    bool lossy = false;      // its role allows it
    bool to_decide = false;
  };
  static constexpr std::size_t kHistory = 64;
  // Adds the time of a scope to what the tuner has cost.
  class Spent {
   public:
    explicit Spent(Tuning& tuning) : tuning_(tuning), begin_(tuning.clock_.now_ns()) {}
    ~Spent() { tuning_.spent_ns_ += tuning_.clock_.now_ns() - begin_; }
    Spent(const Spent&) = delete;
    Spent& operator=(const Spent&) = delete;

   private:
    Tuning& tuning_;
    std::uint64_t begin_;
  };

  struct Surroundings {
    const Clock& clock;
    Disposal& writing;
  };
  Tuning(const TuningSettings& settings, const Surroundings& around, Candidates candidates,
         TuningPolicy policy);
  Status resolve_level(const Tuned& tuned, tuner::Level& level,
                       std::optional<tuner::Bounds>& bounds) const;
  tuner::TensorInfo info_of(const MemberGroup& group, const TensorState& state,
                            const Tuned& tuned) const;
  // Candidates that the tensor cannot have, as bits.
  std::uint32_t unusable_of(const MemberGroup& group, const TensorState& state) const;
  void publish(std::uint64_t number, Tuned& tuned);
  void decide();
  void tell_change(std::uint64_t number, const Tuned& tuned) const;
  // After an op of the tensor of that number.
  struct EndedOp {
    std::uint64_t number;
    const tuner::SentOp& sent;
    std::uint32_t lane;
  };
  void observe_rates(const MemberGroup& group, const Tuned& tuned, const EndedOp& op);
  int take_results();
  void want_samples();
  nlohmann::json describe(std::uint64_t number, const Tuned& tuned, bool all) const;

  const Clock& clock_;
  std::shared_ptr<const CandidateRecipes> recipes_;
  TuningPolicy policy_;
  std::uint64_t policy_version_ = 0;
  tuner::Tuner tuner_;
  std::uint16_t list_;  // which list of candidates it is, for other nodes
  TunerMemory memory_;
  UserLog log_{clock_};
  ChoiceLogs logs_;
  LaneWork lanes_;
  Shadow* shadow_ = nullptr;
  std::function<void(const RecipeChange&)> change_sink_;
  std::map<std::uint64_t, Tuned> tensors_;    // by TensorTuning::number
  std::vector<std::uint64_t> to_decide_;      // of which an op has ended
  std::map<std::string, double> last_rates_;  // by peer and lane
  std::uint64_t next_number_ = 1;
  std::uint64_t next_sample_ = 0;  // whose turn it is
  std::uint64_t op_seen_ns_ = 0;
  std::uint64_t decisions_ = 0, switches_ = 0;
  std::uint64_t spent_ns_ = 0;  // on the conductor's thread
};

}  // namespace tern::daemon
