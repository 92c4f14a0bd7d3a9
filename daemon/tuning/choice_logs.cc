#include "daemon/tuning/choice_logs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tern::daemon {
namespace {

// A log is named by group and epoch; each node keeps the part that it wrote.
std::string log_name(const MemberGroup& group) {
  return "choices-" + group.uid.substr(0, 8) + "-" + std::to_string(group.epoch);
}
std::string part_end(const MemberGroup& group) { return "-" + std::to_string(group.node) + ".log"; }

// As far as the bits of results depend on it.
tuner::ChoiceLogHead head_of(const MemberGroup& group) {
  return {static_cast<std::uint32_t>(group.cut),
          static_cast<std::uint32_t>(std::min(group.eager_form, collective::EagerForm::blocks))};
}

}  // namespace

ChoiceLogs::~ChoiceLogs() {
  for (auto& [number, log] : logs_) {
    if (log.file) log.file->finish();
  }
}

void ChoiceLogs::begin(const MemberGroup& group, Log& log) {
  Written& written = written_[group.account];
  if (written.logs >= limits_.user_logs || written.bytes >= limits_.user_bytes) {
    return tell_there_is_none(
        group, "this user's logs have taken what one may have until the daemon is restarted, " +
                   std::to_string(limits_.user_logs) + " logs or " +
                   std::to_string(limits_.user_bytes) + " bytes");
  }
  // An epoch's number may come again after a restart of the coordinator: no log is overwritten.
  const auto path_of = [directory = directory_, name = log_name(group),
                        end = part_end(group)](int attempt) {
    constexpr int kMostAttempts = 999;
    const std::string again = attempt == 1 ? "" : "-" + std::to_string(attempt);
    return attempt > kMostAttempts ? "" : directory + "/" + name + again + end;
  };
  if (!written.room) written.room = std::make_shared<LateFile::Room>(limits_.user_waiting_bytes);
  const tuner::ChoiceLogHead head = head_of(group);
  std::string text = tuner::choice_log_head(head.cut, head.eager_form);
  log.bytes = text.size();
  log.about = {log_name(group), group.job, group.uid, group.account};
  log.file = LateFile::fresh(writing_, path_of, written.room);
  log.file->append(std::move(text));
  ++written.logs;
}

ChoiceLogs::Log* ChoiceLogs::log_of(const MemberGroup& group) {
  if (directory_.empty()) return nullptr;
  const auto [found, is_new] = logs_.try_emplace(group.number);
  Log& log = found->second;
  if (is_new) begin(group, log);
  if (!log.file) return nullptr;
  const std::string problem = log.file->problem();
  if (problem.empty()) return &log;
  // It may be refused when the disk has not taken its beginning yet.
  if (log.file->has_begun() || !log.file->settled()()) {
    end_early(log, problem);
  } else {
    --written_[group.account].logs;
    tell_there_is_none(group, problem);
    log.file.reset();
  }
  return nullptr;
}

void ChoiceLogs::tell_there_is_none(const MemberGroup& group, const std::string& why) {
  log_.write({LogTopic::groups, group.account, spdlog::level::warn, log_fields(group)},
             "cannot write the log of choices {}/{}{}: {}; this epoch cannot be replayed",
             directory_, log_name(group), part_end(group), why);
}

void ChoiceLogs::end_early(Log& log, const std::string& why) {
  tell_end(log.about, why);
  log.file->finish();
  log.file.reset();
}

void ChoiceLogs::tell_end(const About& about, const std::string& why) {
  const LogFields fields{.job = about.job, .group = short_uid(about.uid)};
  log_.write({LogTopic::groups, about.account, spdlog::level::warn, fields},
             "the log of choices of group {} cannot be written any more: {}; it ends here",
             short_uid(about.uid), why);
}

void ChoiceLogs::end(const MemberGroup& group) {
  const auto found = logs_.find(group.number);
  if (found == logs_.end()) return;
  if (std::optional<LateFile>& file = found->second.file) {
    file->finish();
    if (ended_.size() == kMostEnded) ended_.pop_front();
    ended_.push_back({std::move(*file), std::move(found->second.about)});
  }
  logs_.erase(found);
  tell_problems();
}

void ChoiceLogs::tell_problems() {
  while (!ended_.empty() && ended_.front().file.is_done()) {
    const std::string problem = ended_.front().file.problem();
    if (!problem.empty()) tell_end(ended_.front().about, problem);
    ended_.pop_front();
  }
}

std::function<bool()> ChoiceLogs::settled(const std::string& name) const {
  // One whose name was taken has a number behind it.
  const auto is_of = [&name](const About& about) {
    return name == about.name || name.starts_with(about.name + "-");
  };
  std::vector<std::function<bool()>> all;
  for (const auto& [number, log] : logs_) {
    if (log.file && is_of(log.about)) all.push_back(log.file->settled());
  }
  for (const Ended& ended : ended_) {
    if (is_of(ended.about)) all.push_back(ended.file.settled());
  }
  return [all = std::move(all)] {
    return std::all_of(all.begin(), all.end(), [](const auto& one) { return one(); });
  };
}

void ChoiceLogs::append(const MemberGroup& group, Log& log, const std::string& text) {
  std::uint64_t& of_user = written_[group.account].bytes;
  if (log.bytes + text.size() > limits_.log_bytes) {
    log.file->append(tuner::choice_log_incomplete());
    return end_early(log, "it may have " + std::to_string(limits_.log_bytes) +
                              " bytes at most, and cannot be replayed");
  }
  if (of_user + text.size() > limits_.user_bytes) {
    log.file->append(tuner::choice_log_incomplete());
    return end_early(log,
                     "this user's logs may have " + std::to_string(limits_.user_bytes) +
                         " bytes until the daemon is restarted, and this one cannot be replayed");
  }
  log.file->append(text);
  log.bytes += text.size();
  of_user += text.size();
}

void ChoiceLogs::write(const MemberGroup& group, const tuner::LoggedOp& op) {
  Log* const log = log_of(group);
  if (log != nullptr) append(group, *log, tuner::format(op));
}

void ChoiceLogs::write(const MemberGroup& group, const tuner::LoggedChunk& chunk) {
  if (Log* const log = log_of(group)) append(group, *log, tuner::format(chunk));
}

Result<ReplayTerms> ChoiceLogs::terms_of(const std::string& name, const MemberGroup& group,
                                         const TensorState& state, std::uint32_t unusable) const {
  if (directory_.empty()) {
    return fail(Errc::bad_recipe, "replay: the daemon has no choice_directory");
  }
  if (name.empty() || name.find('/') != std::string::npos) {
    return fail(Errc::bad_recipe,
                "replay: give the name of a log in choice_directory, as choices-0123abcd-1");
  }
  ReplayTerms terms;
  terms.log = name;
  terms.path = directory_ + "/" + name + part_end(group);
  terms.tensor = state.name;
  terms.nodes = static_cast<std::uint32_t>(group.addresses.size());
  terms.self = group.node;
  terms.lanes = group.lane_count;
  terms.head = head_of(group);
  terms.heeds_eager_form = codec::needs_residual(state.declared.recipe) &&
                           state.count * dtype_bytes(state.dtype) <= group.eager_bytes;
  terms.unusable = unusable;
  return terms;
}

}  // namespace tern::daemon
