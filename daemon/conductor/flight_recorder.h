#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/clock.h"
#include "daemon/conductor/record_files.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/membership/member_group.h"
#include "daemon/service/user_log.h"

namespace tern::daemon {

// Keeps the last ops of each group, and writes them to a file when the group or an op has failed.
// Of each user's files the newest are kept.
class FlightRecorder {
 public:
  // How many ops of a group are kept.
  static constexpr std::size_t kFlights = 256;

  // `directory`: empty, no files are written. REQUIRES: all outlive this; a change is seen.
  FlightRecorder(const std::string& directory, const Clock& clock, UserLog& log)
      : directory_(directory), clock_(clock), log_(log) {}
  // Writes what is left.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  void record(const MemberGroup& group, const event::OpEnded& event);
  // The group has failed: a file is due once what the lanes have reported is taken.
  void group_failed(const MemberGroup& group) { groups_[group.number].due = true; }
  // Writes what is due of this group, which may be never: a storm of failures must not become one
  // of files. True: it has written, or tried to.
  bool write_if_due(const MemberGroup& group);
  // The group is being forgotten: what is due of it is written by write_closed(). Of very many such
  // groups the last ones' is.
  void close(const MemberGroup& group);
  // Writes what is due of one group that is forgotten. False: there is none.
  bool write_closed();

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

  static About about(const MemberGroup& group);
  // Because the group's tensors are forgotten with it.
  static void name_tensors(const MemberGroup& group, Flights& flights);
  bool write(const About& about, Flights& flights);
  nlohmann::json document(const About& about, const Flights& flights) const;

  const std::string& directory_;
  const Clock& clock_;
  UserLog& log_;
  std::map<std::uint64_t, Flights> groups_;  // by number
  std::deque<Closed> closed_;
  RecordFiles files_;
};

}  // namespace tern::daemon
