// Logs of choices: written as the tuner chooses, and replayed.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "daemon/service/log.h"
#include "daemon/tuning/tuning.h"

namespace tern::daemon {
namespace {

// A log is named by group and epoch; each node keeps the part that it wrote.
std::string log_name(const MemberGroup& group) {
  return "choices-" + group.uid.substr(0, 8) + "-" + std::to_string(group.epoch);
}
std::string part_name(const std::string& log, const MemberGroup& group) {
  return log + "-" + std::to_string(group.node) + ".log";
}

std::uint32_t version_of(shm::CutVersion cut) { return static_cast<std::uint32_t>(cut); }

// As far as the bits of results depend on it.
std::uint32_t eager_form_of(const MemberGroup& group) {
  return static_cast<std::uint32_t>(std::min(group.eager_form, collective::EagerForm::blocks));
}

tl::unexpected<Error> misfit(const std::string& log, const std::string& what) {
  return fail(Errc::bad_recipe, "replay: " + log + ": " + what);
}

}  // namespace

std::ofstream* Tuning::log_of(const MemberGroup& group) {
  if (settings_.choice_directory.empty()) return nullptr;
  const auto found = logs_.find(group.number);
  if (found != logs_.end()) return found->second.is_open() ? &found->second : nullptr;
  // An epoch's number may come again after a restart of the coordinator: no log is overwritten.
  std::string path;
  std::error_code error;
  for (int again = 1; again < 1000; ++again) {
    const std::string name = log_name(group) + (again == 1 ? "" : "-" + std::to_string(again));
    path = settings_.choice_directory + "/" + part_name(name, group);
    if (!std::filesystem::exists(path, error)) break;
  }
  std::ofstream& log = logs_[group.number];
  if (!std::filesystem::exists(path, error)) log.open(path);
  if (!log.is_open() ||
      !(log << tuner::choice_log_head(version_of(group.cut), eager_form_of(group)))) {
    log_about(log_fields(group), spdlog::level::warn,
              "cannot write the log of choices {}: this epoch cannot be replayed", path);
    log.close();
    return nullptr;
  }
  return &log;
}

void Tuning::on_choice_used(const MemberGroup& group, const TensorState& state, std::uint32_t lane,
                            const event::ChoiceInUse& in_use) {
  const ChoiceUsed& used = in_use.choice;
  std::ofstream* const log = log_of(group);
  const auto found = state.tuning ? tensors_.find(state.tuning->number()) : tensors_.end();
  if (log == nullptr || found == tensors_.end()) return;
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
  *log << tuner::format(op) << std::flush;
  if (!*log) {
    log_about({.job = group.job, .group = short_uid(group.uid), .tensor = state.name},
              spdlog::level::warn,
              "the log of choices of group {} cannot be written any more: {}; it ends here",
              short_uid(group.uid), std::strerror(errno));
    log->close();
  }
}

void Tuning::on_chunk_choice(const MemberGroup& group, const TensorState& state, std::uint32_t lane,
                             const event::ChunkChoice& chosen) {
  std::ofstream* const log = log_of(group);
  if (log == nullptr) return;
  tuner::LoggedChunk chunk;
  chunk.tensor = state.name;
  chunk.use = chosen.use;
  chunk.lane = lane;
  chunk.leg = static_cast<std::uint32_t>(chosen.leg);
  chunk.chunk = chosen.chunk;
  chunk.recipe = tuner_.candidates()[chosen.candidate].recipe;
  *log << tuner::format(chunk);
}

std::size_t Tuning::index_of(const std::string& recipe) const {
  const auto candidates = tuner_.candidates();
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const auto& one) { return one.recipe == recipe; });
  return static_cast<std::size_t>(found - candidates.begin());
}

Status Tuning::replay_ops(const Replay& replay, const tuner::ChoiceLog& log,
                          TensorTuning& tuning) const {
  const MemberGroup& group = replay.group;
  const auto nodes = group.addresses.size();
  for (const tuner::LoggedOp& op : log.ops) {
    if (op.tensor != replay.state.name) continue;
    if (op.lane >= group.lane_count || op.reduce.size() + 1 != nodes) {
      return misfit(replay.name, "it is of a group with other lanes or nodes");
    }
    ReplayedLane::Op record;
    record.use = op.use;
    record.probe_chunks = static_cast<std::uint8_t>(std::min(op.probe_chunks, 255u));
    std::size_t peer = 0;
    for (std::size_t node = 0; node < nodes; ++node) {
      const std::string& recipe = node == group.node ? op.broadcast : op.reduce[peer++];
      const std::size_t index = index_of(recipe);
      if (index == recipes_->size()) {
        return misfit(replay.name, recipe + " is none of the candidates");
      }
      if ((replay.unusable >> index & 1) != 0) {
        return misfit(replay.name, "this tensor cannot have " + recipe);
      }
      record.by_node.push_back(static_cast<tuner::CandidateIndex>(index));
    }
    tuning.replay[op.lane].ops.push_back(std::move(record));
  }
  return {};
}

Status Tuning::replay_chunks(const Replay& replay, const tuner::ChoiceLog& log,
                             TensorTuning& tuning) const {
  for (const tuner::LoggedChunk& chunk : log.chunks) {
    if (chunk.tensor != replay.state.name) continue;
    const std::size_t index = index_of(chunk.recipe);
    if (chunk.lane >= replay.group.lane_count || index == recipes_->size() ||
        (replay.unusable >> index & 1) != 0) {
      return misfit(replay.name, "a block's lane or recipe is unknown here");
    }
    tuning.replay[chunk.lane].chunks.push_back({chunk.use,
                                                std::uint64_t{chunk.chunk} * 2 + (chunk.leg - 1),
                                                static_cast<tuner::CandidateIndex>(index)});
  }
  return {};
}

Status Tuning::load_replay(const Replay& replay, TensorTuning& tuning) const {
  const std::string& name = replay.name;
  if (settings_.choice_directory.empty()) {
    return fail(Errc::bad_recipe, "replay: the daemon has no choice_directory");
  }
  if (name.empty() || name.find('/') != std::string::npos) {
    return fail(Errc::bad_recipe,
                "replay: give the name of a log in choice_directory, as choices-0123abcd-1");
  }
  const std::string part = part_name(name, replay.group);
  std::ifstream file(settings_.choice_directory + "/" + part);
  std::stringstream text;
  if (!(text << file.rdbuf())) {
    return fail(Errc::bad_recipe, "replay: " + part + " cannot be read in choice_directory");
  }
  const auto log = tuner::parse_choice_log(text.str());
  if (!log) return fail(Errc::bad_recipe, "replay: " + name + ": " + log.error().text);
  if (log->cut != version_of(replay.group.cut)) {
    const std::string then = std::to_string(log->cut);
    return misfit(name, "its tensors were cut by version " + then + ", those of this group by " +
                            std::to_string(version_of(replay.group.cut)) +
                            "; the setting cut of a node decides");
  }
  const TensorState& state = replay.state;
  const bool is_small = codec::needs_residual(state.declared.recipe) &&
                        state.count * dtype_bytes(state.dtype) <= replay.group.eager_bytes;
  if (is_small && log->eager_form != eager_form_of(replay.group)) {
    return misfit(name, "small operations travelled by form " + std::to_string(log->eager_form) +
                            ", in this group by " + std::to_string(eager_form_of(replay.group)) +
                            "; the setting eager_form of a node decides");
  }
  tuning.replay.resize(replay.group.lane_count);
  if (auto taken = replay_ops(replay, *log, tuning); !taken) return taken;
  if (auto taken = replay_chunks(replay, *log, tuning); !taken) return taken;
  if (std::all_of(tuning.replay.begin(), tuning.replay.end(),
                  [](const ReplayedLane& lane) { return lane.ops.empty(); })) {
    return misfit(name, "it says nothing of " + replay.state.name);
  }
  for (ReplayedLane& lane : tuning.replay) {
    std::stable_sort(lane.ops.begin(), lane.ops.end(),
                     [](const auto& a, const auto& b) { return a.use < b.use; });
    std::stable_sort(lane.chunks.begin(), lane.chunks.end(),
                     [](const auto& a, const auto& b) { return a.key() < b.key(); });
  }
  return {};
}

}  // namespace tern::daemon
