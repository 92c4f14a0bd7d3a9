#include "daemon/conductor/flight_recorder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "collective/passing.h"
#include "daemon/control/foreign_json.h"
#include "daemon/service/late_file.h"
#include "plan/plans.h"

namespace tern::daemon {
namespace {

// Between two files of one group.
constexpr std::uint64_t kFilesEveryNs = 1'000'000'000;

bool passes(const OpRecord& record) {
  const plan::Plan* const plan = plan::find(record.kind);
  return plan != nullptr && plan->passes();
}

std::string what_failed(const OpRecord& record, const std::string& tensor) {
  const std::string number = std::to_string(record.sequence);
  return passes(record) ? std::string(plan::name_of(record.kind)) + " with tag " + number
                        : "op " + number + " of " + tensor;
}

// It takes the path's place, or nothing does. An error number, or 0.
int write_whole(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".new";
  errno = 0;
  std::ofstream out(unfinished);
  out << text;
  out.close();
  if (out && std::rename(unfinished.c_str(), path.c_str()) == 0) return 0;
  const int error = errno != 0 ? errno : EIO;
  std::remove(unfinished.c_str());
  return error;
}

}  // namespace

void FlightRecorder::record(const MemberGroup& group, const event::OpEnded& event) {
  Flights& flights = groups_[group.number];
  if (flights.ops.size() == kFlights) flights.ops.pop_front();
  flights.ops.push_back({event.record, event.code, event.text.c_str(), ""});
  if (event.code == Errc::ok) return;
  const TensorState* const tensor = group.tensor(event.record.tensor);
  const std::string name = tensor == nullptr ? "(anonymous)" : tensor->name;
  LogFields fields = log_fields(group);
  fields.tensor = name;
  log_.write({LogTopic::ops, group.account, spdlog::level::warn, fields},
             "group {} epoch {}: {} failed: {}: {}", short_uid(group.uid), group.epoch,
             what_failed(event.record, name), errc_name(event.code), event.text.c_str());
  flights.due = true;
}

bool FlightRecorder::write_if_due(const MemberGroup& group) {
  const auto found = groups_.find(group.number);
  if (found == groups_.end()) return false;
  const std::uint64_t now = clock_.now_ns();
  Flights& flights = found->second;
  if (!flights.due || now - flights.written_ns < kFilesEveryNs) return false;
  flights.written_ns = now;
  name_tensors(group, flights);
  return write(about(group), flights);
}

void FlightRecorder::close(const MemberGroup& group) {
  const auto found = groups_.find(group.number);
  if (found == groups_.end()) return;
  if (found->second.due) {
    if (closed_.size() == kMaxClosed) closed_.pop_front();
    name_tensors(group, found->second);
    closed_.push_back({about(group), std::move(found->second)});
  }
  groups_.erase(found);
}

bool FlightRecorder::write_closed() {
  if (closed_.empty()) return false;
  Closed one = std::move(closed_.front());
  closed_.pop_front();
  write(one.about, one.flights);
  return true;
}

FlightRecorder::~FlightRecorder() {
  while (write_closed()) {
  }
}

FlightRecorder::About FlightRecorder::about(const MemberGroup& group) {
  return {group.uid, group.job, group.end_text, group.epoch, group.account};
}

void FlightRecorder::name_tensors(const MemberGroup& group, Flights& flights) {
  for (Flight& flight : flights.ops) {
    const TensorState* const tensor = group.tensor(flight.record.tensor);
    if (tensor != nullptr) flight.tensor = tensor->name;
  }
}

nlohmann::json FlightRecorder::document(const About& about, const Flights& flights) const {
  nlohmann::json ops = nlohmann::json::array();
  const std::uint64_t now = clock_.now_ns();
  for (const auto& flight : flights.ops) {
    const OpRecord& record = flight.record;
    nlohmann::json op = {
        {"tensor", flight.tensor},
        {"op", record.sequence},
        {"kind", plan::name_of(record.kind)},
        {"dtype", dtype_name(static_cast<DType>(record.dtype))},
        {"reduction", reduction_name(static_cast<Reduction>(record.reduction))},
        {"count", record.count},
        {"lane", record.lane},
        {"lossy", record.lossy},
        {"eager", record.eager},
        {"bytes_sent", record.bytes_sent},
        {"ended_us_ago", (now - record.ended_ns) / 1000},
        {"wait_us", record.started_ns == 0 ? 0 : (record.started_ns - record.submitted_ns) / 1000},
        {"total_us", (record.ended_ns - record.submitted_ns) / 1000},
        {"status", errc_name(flight.code)},
        {"text", flight.text}};
    if (passes(record)) {
      op["tag"] = record.sequence;
      op["peer"] = record.peer;
      if (record.peer == collective::kAnySource) op["peer"] = nullptr;
    }
    ops.push_back(std::move(op));
  }
  return {{"group", about.uid.substr(0, 8)},
          {"job", about.job},
          {"epoch", about.epoch},
          {"error", about.end_text},
          {"ops", std::move(ops)}};
}

bool FlightRecorder::write(const About& about, Flights& flights) {
  flights.due = false;
  if (directory_.empty() || flights.ops.empty()) return false;
  const std::string name = RecordFiles::text_of({about.uid, about.epoch, about.account});
  std::string text = json_text(document(about, flights), 1) + "\n";
  const std::uint64_t bytes = text.size();
  if (writing_.bytes_of(about.account) + bytes > kMostWaiting || writing_.is_stuck(about.account)) {
    tell({about, directory_ + "/" + name, LateFile::kDiskIsSlow});
    return true;
  }
  const auto write_it = [written = written_, about, directory = directory_, name,
                         text = std::move(text)] {
    const std::scoped_lock lock(written->mutex);
    written->files.use(directory);
    const std::string path = directory + "/" + name;
    if (const int error = write_whole(path, text); error == 0) {
      written->files.add(name, text.size());
    } else {
      written->problems.put({about, path, std::strerror(error)});
    }
    return false;
  };
  writing_.take(about.account, write_it, bytes);
  return true;
}

void FlightRecorder::tell_problems() {
  for (const Problem& one : written_->problems.take_all()) tell(one);
}

void FlightRecorder::tell(const Problem& problem) {
  const LogFields fields{.job = problem.about.job, .group = short_uid(problem.about.uid)};
  log_.write({LogTopic::ops, problem.about.account, spdlog::level::warn, fields},
             "cannot write the flight record {}: {}", problem.path, problem.why);
}

}  // namespace tern::daemon
