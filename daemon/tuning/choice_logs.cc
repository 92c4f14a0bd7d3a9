#include "daemon/tuning/choice_logs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

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

std::ofstream* ChoiceLogs::log_of(const MemberGroup& group) {
  if (directory_.empty()) return nullptr;
  const auto found = logs_.find(group.number);
  if (found != logs_.end()) return found->second.is_open() ? &found->second : nullptr;
  // An epoch's number may come again after a restart of the coordinator: no log is overwritten.
  std::string path;
  std::error_code error;
  for (int again = 1; again < 1000; ++again) {
    const std::string name = log_name(group) + (again == 1 ? "" : "-" + std::to_string(again));
    path = directory_ + "/" + part_name(name, group);
    if (!std::filesystem::exists(path, error)) break;
  }
  std::ofstream& log = logs_[group.number];
  if (!std::filesystem::exists(path, error)) log.open(path);
  if (!log.is_open() ||
      !(log << tuner::choice_log_head(version_of(group.cut), eager_form_of(group)))) {
    log_.write({LogTopic::groups, group.account, spdlog::level::warn, log_fields(group)},
               "cannot write the log of choices {}: this epoch cannot be replayed", path);
    log.close();
    return nullptr;
  }
  return &log;
}

void ChoiceLogs::write(const MemberGroup& group, const tuner::LoggedOp& op) {
  std::ofstream* const log = log_of(group);
  if (log == nullptr) return;
  *log << tuner::format(op) << std::flush;
  if (*log) return;
  log_.write({LogTopic::groups,
              group.account,
              spdlog::level::warn,
              {.job = group.job, .group = short_uid(group.uid), .tensor = op.tensor}},
             "the log of choices of group {} cannot be written any more: {}; it ends here",
             short_uid(group.uid), std::strerror(errno));
  log->close();
}

void ChoiceLogs::write(const MemberGroup& group, const tuner::LoggedChunk& chunk) {
  if (std::ofstream* const log = log_of(group)) *log << tuner::format(chunk);
}

std::size_t ChoiceLogs::index_of(const std::string& recipe) const {
  const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                  [&](const auto& one) { return one.recipe == recipe; });
  return static_cast<std::size_t>(found - candidates_.begin());
}

Status ChoiceLogs::read_op(const Replay& replay, const tuner::LoggedOp& op,
                           ReplayedLane& lane) const {
  ReplayedLane::Op record;
  record.use = op.use;
  record.probe_chunks = static_cast<std::uint8_t>(std::min(op.probe_chunks, 255u));
  std::size_t peer = 0;
  for (std::size_t node = 0; node < replay.group.addresses.size(); ++node) {
    const std::string& recipe = node == replay.group.node ? op.broadcast : op.reduce[peer++];
    const std::size_t index = index_of(recipe);
    if (index == candidates_.size()) {
      return misfit(replay.name, recipe + " is none of the candidates");
    }
    if ((replay.unusable >> index & 1) != 0) {
      return misfit(replay.name, "this tensor cannot have " + recipe);
    }
    record.by_node.push_back(static_cast<tuner::CandidateIndex>(index));
  }
  lane.ops.push_back(std::move(record));
  return {};
}

// The log that is named, if it fits the group and the tensor at all.
Result<tuner::ChoiceLog> ChoiceLogs::parse(const Replay& replay) const {
  const std::string& name = replay.name;
  if (directory_.empty()) {
    return fail(Errc::bad_recipe, "replay: the daemon has no choice_directory");
  }
  if (name.empty() || name.find('/') != std::string::npos) {
    return fail(Errc::bad_recipe,
                "replay: give the name of a log in choice_directory, as choices-0123abcd-1");
  }
  const std::string part = part_name(name, replay.group);
  std::ifstream file(directory_ + "/" + part);
  std::stringstream text;
  if (!(text << file.rdbuf())) {
    return fail(Errc::bad_recipe, "replay: " + part + " cannot be read in choice_directory");
  }
  auto log = tuner::parse_choice_log(text.str());
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
  return log;
}

Result<std::vector<ReplayedLane>> ChoiceLogs::read(const Replay& replay) const {
  const auto log = parse(replay);
  if (!log) return tl::unexpected(log.error());
  const MemberGroup& group = replay.group;
  const std::string& tensor = replay.state.name;
  std::vector<ReplayedLane> lanes(group.lane_count);
  for (const tuner::LoggedOp& op : log->ops) {
    if (op.tensor != tensor) continue;
    if (op.lane >= lanes.size() || op.reduce.size() + 1 != group.addresses.size()) {
      return misfit(replay.name, "it is of a group with other lanes or nodes");
    }
    if (auto taken = read_op(replay, op, lanes[op.lane]); !taken) {
      return tl::unexpected(taken.error());
    }
  }
  for (const tuner::LoggedChunk& chunk : log->chunks) {
    if (chunk.tensor != tensor) continue;
    const std::size_t index = index_of(chunk.recipe);
    if (chunk.lane >= lanes.size() || index == candidates_.size() ||
        (replay.unusable >> index & 1) != 0) {
      return misfit(replay.name, "a block's lane or recipe is unknown here");
    }
    lanes[chunk.lane].chunks.push_back({chunk.use, std::uint64_t{chunk.chunk} * 2 + (chunk.leg - 1),
                                        static_cast<tuner::CandidateIndex>(index)});
  }
  if (std::all_of(lanes.begin(), lanes.end(),
                  [](const ReplayedLane& lane) { return lane.ops.empty(); })) {
    return misfit(replay.name, "it says nothing of " + tensor);
  }
  for (ReplayedLane& lane : lanes) {
    std::stable_sort(lane.ops.begin(), lane.ops.end(),
                     [](const auto& a, const auto& b) { return a.use < b.use; });
    std::stable_sort(lane.chunks.begin(), lane.chunks.end(),
                     [](const auto& a, const auto& b) { return a.key() < b.key(); });
  }
  return lanes;
}

}  // namespace tern::daemon
