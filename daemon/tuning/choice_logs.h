#pragma once

// Logs of choices (tuner/choice_log.h) in a directory: one for each epoch of a group and each of
// its nodes, written as the tuner chooses and replayed in a later run.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "daemon/membership/member_group.h"
#include "daemon/service/late_file.h"
#include "daemon/service/user_log.h"
#include "daemon/tensor/tensor_state.h"
#include "daemon/tuning/replay_reading.h"
#include "tuner/choice_log.h"

namespace tern::daemon {

class ChoiceLogs {
 public:
  // What a daemon writes. A user's groups may be without number, and the disk is everybody's.
  struct Limits {
    std::uint64_t log_bytes = ReplayTerms::kMostBytes;
    std::uint64_t user_logs = 4096;
    std::uint64_t user_bytes = std::uint64_t{1} << 30;
    std::uint64_t user_waiting_bytes = LateFile::kMostWaiting;  // that the disk does not take
  };

  // `directory`: empty, and none are written or replayed. What is given outlives this; `writing`
  // has the thread that waits for the disk.
  ChoiceLogs(std::string directory, UserLog& log, Disposal& writing)
      : ChoiceLogs(std::move(directory), {log, writing}, {}) {}
  struct Surroundings {
    UserLog& log;
    Disposal& writing;
  };
  ChoiceLogs(std::string directory, const Surroundings& around, const Limits& limits)
      : directory_(std::move(directory)),
        log_(around.log),
        writing_(around.writing),
        limits_(limits) {}
  // Ends all.
  ~ChoiceLogs();
  ChoiceLogs(const ChoiceLogs&) = delete;
  ChoiceLogs& operator=(const ChoiceLogs&) = delete;

  // ---- Written. A log that cannot be written ends, and the daemon's log says so once. ----
  // Whether the group's epoch has one, as far as is known. It is made the first time; none is
  // overwritten.
  bool open(const MemberGroup& group) { return log_of(group) != nullptr; }
  void write(const MemberGroup& group, const tuner::LoggedOp& op);
  void write(const MemberGroup& group, const tuner::LoggedChunk& chunk);
  void end(const MemberGroup& group);
  // Of logs that have ended, once it is known.
  void tell_problems();

  // ---- Replayed ----
  // Whether what this daemon writes to logs of that name lies on the disk. Thread: any.
  std::function<bool()> settled(const std::string& name) const;
  // What the tensor's declaration asks of the log of that name. `unusable`: candidates that the
  // tensor cannot have, as bits.
  Result<ReplayTerms> terms_of(const std::string& name, const MemberGroup& group,
                               const TensorState& state, std::uint32_t unusable) const;

 private:
  // Whose a log is.
  struct About {
    std::string name;  // of the log, without its node
    std::string job, uid;
    std::uint32_t account = 0;
  };
  struct Log {
    std::optional<LateFile> file;  // none: it has ended
    std::uint64_t bytes = 0;
    About about;
  };
  struct Ended {
    LateFile file;
    About about;
  };
  // Of more that end before the disk has taken them nothing is told.
  static constexpr std::size_t kMostEnded = 1024;
  // Of a user, since the daemon has begun.
  struct Written {
    std::uint64_t logs = 0, bytes = 0;
    std::shared_ptr<LateFile::Room> room;  // of all the logs; none yet
  };

  Log* log_of(const MemberGroup& group);  // null: there is none
  void begin(const MemberGroup& group, Log& log);
  void append(const MemberGroup& group, Log& log, const std::string& text);
  void tell_there_is_none(const MemberGroup& group, const std::string& why);
  void end_early(Log& log, const std::string& why);
  void tell_end(const About& about, const std::string& why);

  std::string directory_;
  UserLog& log_;
  Disposal& writing_;
  Limits limits_;
  std::map<std::uint64_t, Log> logs_;         // by group number
  std::map<std::uint32_t, Written> written_;  // by account
  std::deque<Ended> ended_;                   // the oldest first
};

}  // namespace tern::daemon
