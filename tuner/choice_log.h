#pragma once

// The log of choices: what was sent how, so that a run can be repeated bit for bit. A text file,
// one record on a line, fields separated by a space:
//
//   tern-choices 1
//   cut <version>
//   eager_form <version>
//   op <tensor> <use> <lane> <probe> <broadcast> <reduce> ...
//   chunk <tensor> <use> <lane> <leg> <chunk> <recipe>
//   incomplete limit
//
// `cut` says how tensors were cut (shm::CutVersion), on which the numbers of chunks depend;
// `eager_form` whether ops that travel with their announcements may be blocks there. Without such a
// line it was version 1. An `op` record holds from the tensor's use-th operation on: results travel
// as `broadcast`, contributions as `reduce`, one recipe for each other node in order; the first
// `probe` of those to each node raw. A `chunk` record is of one block that was made otherwise,
// because the choice changed in the middle of the operation; leg is 1 for a contribution and 2 for
// a result. `tensor` is a name, with `%` and two hexadecimal digits for each byte that is a space,
// a control character or `%`. `incomplete` is the last record of a log that was as long as one may
// be before its run ended. Each node has a log of its own.

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tern::tuner {

struct LoggedOp {
  std::string tensor;
  std::uint64_t use = 0;
  std::uint32_t lane = 0;
  std::uint32_t probe_chunks = 0;
  std::string broadcast;
  std::vector<std::string> reduce;

  friend bool operator==(const LoggedOp&, const LoggedOp&) = default;
};

struct LoggedChunk {
  std::string tensor;
  std::uint64_t use = 0;
  std::uint32_t lane = 0;
  std::uint32_t leg = 1;
  std::uint32_t chunk = 0;
  std::string recipe;

  friend bool operator==(const LoggedChunk&, const LoggedChunk&) = default;
};

// What a log says of itself.
struct ChoiceLogHead {
  std::uint32_t cut = 1;
  std::uint32_t eager_form = 1;
  bool incomplete = false;

  friend bool operator==(const ChoiceLogHead&, const ChoiceLogHead&) = default;
};

struct ChoiceLog : ChoiceLogHead {
  std::vector<LoggedOp> ops;  // in the order of the file
  std::vector<LoggedChunk> chunks;
};

// The first lines.
std::string choice_log_head(std::uint32_t cut = 1, std::uint32_t eager_form = 1);
std::string format(const LoggedOp& op);
std::string format(const LoggedChunk& chunk);
std::string choice_log_incomplete();

// Reads a log of any length, and keeps a line of it at a time.
class ChoiceLogReader {
 public:
  struct End {};
  using Record = std::variant<LoggedOp, LoggedChunk, End>;

  // Of a line. Names have at most 127 bytes, and a group has 64 nodes.
  static constexpr std::size_t kMostLine = 64 << 10;

  // The log outlives this. A longer one, in bytes, is an error.
  explicit ChoiceLogReader(std::istream& log, std::uint64_t most_bytes = ~std::uint64_t{0})
      : log_(log), most_bytes_(most_bytes), buffer_(kMostLine, '\0') {}

  // The error names the line.
  Result<Record> next();
  // As far as has been read. It comes before the records that it is about, but for `incomplete`.
  const ChoiceLogHead& head() const noexcept { return head_; }

 private:
  // False: there is none.
  Result<bool> next_line(std::string_view& line);
  tl::unexpected<Error> failure(const std::string& problem) const;

  std::istream& log_;
  std::uint64_t most_bytes_;
  std::string buffer_;
  ChoiceLogHead head_;
  std::uint64_t lines_ = 0, bytes_ = 0;
};

// The error names the line.
Result<ChoiceLog> parse_choice_log(const std::string& text);

}  // namespace tern::tuner
