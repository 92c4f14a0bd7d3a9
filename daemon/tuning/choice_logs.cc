#include "daemon/tuning/choice_logs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace tern::daemon {
namespace {

// A log is named by group and epoch; each node keeps the part that it wrote.
std::string log_name(const MemberGroup& group) {
  return "choices-" + group.uid.substr(0, 8) + "-" + std::to_string(group.epoch);
}
std::string part_name(const std::string& log, const MemberGroup& group) {
  return log + "-" + std::to_string(group.node) + ".log";
}

// As far as the bits of results depend on it.
tuner::ChoiceLogHead head_of(const MemberGroup& group) {
  return {static_cast<std::uint32_t>(group.cut),
          static_cast<std::uint32_t>(std::min(group.eager_form, collective::EagerForm::blocks))};
}

}  // namespace

// Empty, or why the epoch has no log.
std::string ChoiceLogs::problem_of(const MemberGroup& group, const std::string& path) {
  const Written& written = written_[group.account];
  if (written.logs >= limits_.user_logs || written.bytes >= limits_.user_bytes) {
    return "this user's logs have taken what one may have until the daemon is restarted, " +
           std::to_string(limits_.user_logs) + " logs or " + std::to_string(limits_.user_bytes) +
           " bytes";
  }
  std::error_code error;
  Log& log = logs_[group.number];
  errno = 0;
  if (!std::filesystem::exists(path, error)) log.file.open(path);
  const tuner::ChoiceLogHead head = head_of(group);
  const std::string text = tuner::choice_log_head(head.cut, head.eager_form);
  if (!log.file.is_open() || !(log.file << text)) {
    return errno != 0 ? std::strerror(errno) : "it cannot be made";
  }
  log.bytes = text.size();
  ++written_[group.account].logs;
  return "";
}

ChoiceLogs::Log* ChoiceLogs::log_of(const MemberGroup& group) {
  if (directory_.empty()) return nullptr;
  const auto found = logs_.find(group.number);
  if (found != logs_.end()) return found->second.file.is_open() ? &found->second : nullptr;
  // An epoch's number may come again after a restart of the coordinator: no log is overwritten.
  std::string path;
  std::error_code error;
  for (int again = 1; again < 1000; ++again) {
    const std::string name = log_name(group) + (again == 1 ? "" : "-" + std::to_string(again));
    path = directory_ + "/" + part_name(name, group);
    if (!std::filesystem::exists(path, error)) break;
  }
  const std::string problem = problem_of(group, path);
  Log& log = logs_[group.number];
  if (problem.empty()) return &log;
  log_.write({LogTopic::groups, group.account, spdlog::level::warn, log_fields(group)},
             "cannot write the log of choices {}: {}; this epoch cannot be replayed", path,
             problem);
  log.file.close();
  return nullptr;
}

void ChoiceLogs::end_early(const MemberGroup& group, Log& log, const std::string& why) {
  log_.write({LogTopic::groups, group.account, spdlog::level::warn, log_fields(group)},
             "the log of choices of group {} cannot be written any more: {}; it ends here",
             short_uid(group.uid), why);
  log.file.close();
}

void ChoiceLogs::append(const MemberGroup& group, Log& log, const std::string& text) {
  std::uint64_t& of_user = written_[group.account].bytes;
  if (log.bytes + text.size() > limits_.log_bytes) {
    log.file << tuner::choice_log_incomplete();
    return end_early(group, log,
                     "it may have " + std::to_string(limits_.log_bytes) +
                         " bytes at most, and cannot be replayed");
  }
  if (of_user + text.size() > limits_.user_bytes) {
    log.file << tuner::choice_log_incomplete();
    return end_early(group, log,
                     "this user's logs may have " + std::to_string(limits_.user_bytes) +
                         " bytes until the daemon is restarted, and this one cannot be replayed");
  }
  log.file << text;
  log.bytes += text.size();
  of_user += text.size();
}

void ChoiceLogs::write(const MemberGroup& group, const tuner::LoggedOp& op) {
  Log* const log = log_of(group);
  if (log == nullptr) return;
  append(group, *log, tuner::format(op));
  if (!log->file.is_open() || log->file.flush()) return;
  end_early(group, *log, std::strerror(errno));
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
  terms.path = directory_ + "/" + part_name(name, group);
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
