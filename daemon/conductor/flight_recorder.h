#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "daemon/conductor/record_files.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/membership/member_group.h"
#include "daemon/service/disposal.h"
#include "daemon/service/inbox.h"
#include "daemon/service/user_log.h"

namespace tern::daemon {

// Keeps the last ops of each group, and writes them to a file when the group or an op has failed.
// Of each user's files the newest are kept.
class FlightRecorder {
 public:
  // How many ops of a group are kept.
  static constexpr std::size_t kFlights = 256;

  struct Surroundings {
    const Clock& clock;
    UserLog& log;
    Disposal& writing;  // has the thread that waits for the disk
  };
  // `directory`: empty, no files are written. REQUIRES: all outlive this; a change is seen.
  FlightRecorder(const std::string& directory, const Surroundings& around)
      : directory_(directory), clock_(around.clock), log_(around.log), writing_(around.writing) {}
  // Hands over what is left.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  void record(const MemberGroup& group, const event::OpEnded& event);
  // The group has failed: a file is due once what the lanes have reported is taken.
  void group_failed(const MemberGroup& group) { groups_[group.number].due = true; }
  // Has what is due of this group written, which may be never: a storm of failures must not become
  // one of files. True: it was due.
  bool write_if_due(const MemberGroup& group);
  // The group is being forgotten: what is due of it is for write_closed(). Of very many such groups
  // the last ones' is.
  void close(const MemberGroup& group);
  // Has what is due of one group that is forgotten written. False: there is none.
  bool write_closed();
  // The log says what could not be written since.
  void tell_problems();

 private:
  struct Flight {
    OpRecord record;
    Errc code = Errc::ok;
    std::string text;
    std::string tensor;  // its name, when the group is forgotten
  };
  struct Flights {
    std::deque<Flight> ops;  // the oldest first
    std::uint64_t written_ns = 0;
    bool due = false;
  };

  // What a file says of a group.
  struct About {
    std::string uid, job, end_text;
    std::uint32_t epoch = 0, account = 0;
  };
  struct Closed {
    About about;
    Flights flights;
  };
  static constexpr std::size_t kMaxClosed = 64;
  // So much of a user may wait for the disk; what comes then is not written.
  static constexpr std::uint64_t kMostWaiting = std::uint64_t{4} << 20;

  // What one did not get written.
  struct Problem {
    About about;
    std::string path, why;
  };
  // Used by the threads that write, one of each user, which may outlive this.
  struct Written {
    std::mutex mutex;
    RecordFiles files;  // of them, one at a time
    Inbox<Problem> problems;
  };

  static About about(const MemberGroup& group);
  // Because the group's tensors are forgotten with it.
  static void name_tensors(const MemberGroup& group, Flights& flights);
  bool write(const About& about, Flights& flights);
  void tell(const Problem& problem);
  nlohmann::json document(const About& about, const Flights& flights) const;

  const std::string& directory_;
  const Clock& clock_;
  UserLog& log_;
  Disposal& writing_;
  std::map<std::uint64_t, Flights> groups_;  // by number
  std::deque<Closed> closed_;
  std::shared_ptr<Written> written_ = std::make_shared<Written>();
};

}  // namespace tern::daemon
