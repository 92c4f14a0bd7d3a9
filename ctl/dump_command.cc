#include "ctl/dump_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "counters/counters_file.h"
#include "ctl/archive.h"
#include "ctl/counters_command.h"
#include "ctl/doctor.h"
#include "ctl/fields.h"
#include "ctl/flight_directories.h"
#include "ctl/output_file.h"

namespace tern::ctl {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::array kAnswers{"version", "status", "settings", "host",     "clients",
                              "peers",   "groups", "tensors",  "counters", "tuner"};
constexpr std::size_t kMaxFlights = 8;
constexpr std::uintmax_t kMaxFlightBytes = 1 << 20;
// Where the daemon does not hand out its log. A constant: nothing of anybody's gets into the shell.
constexpr const char* kJournal =
    "timeout 10 journalctl --unit=ternd --unit='ternd@*' --lines=500 --no-pager --output=short-iso "
    "2>&1";

// The members, and what could not be had.
class Dump {
 public:
  // The folder is the one that all members are in.
  explicit Dump(std::string folder) : folder_(std::move(folder)) {}

  void add(const std::string& name, std::string text) {
    const auto member = tar_member({folder_ + "/" + name, std::move(text)}, now_);
    if (!member) return miss(name, member.error().text);
    members_ += *member;
    ++count_;
  }
  void miss(const std::string& what, const std::string& why) {
    missing_ += fmt::format("{}: {}\n", what, why.substr(0, why.find('\n')));
  }
  Status write(const std::string& path) const {
    utsname machine{};
    ::uname(&machine);
    const auto readme = tar_member(
        {folder_ + "/README",
         fmt::format("What `ternctl dump` of ternctl {} found on {} ({} {}).\n\nMissing:\n{}",
                     TERN_VERSION, machine.nodename, machine.sysname, machine.release,
                     missing_.empty() ? "nothing\n" : missing_)},
        now_);
    if (!readme) return tl::unexpected(readme.error());
    auto packed = gzipped(*readme + members_ + archive_end());
    if (!packed) return tl::unexpected(packed.error());
    auto output = OutputFile::create(path);
    if (!output) return tl::unexpected(output.error());
    output->write(*packed);
    return output->finish();
  }
  std::size_t count() const noexcept { return count_ + 1; }
  bool complete() const noexcept { return missing_.empty(); }

 private:
  std::string folder_, members_, missing_;
  std::size_t count_ = 0;
  std::int64_t now_ = std::time(nullptr);
};

std::string journal() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(kJournal, "r"), ::pclose);
  std::string text;
  std::array<char, 4096> piece{};
  while (pipe) {
    const std::size_t count = std::fread(piece.data(), 1, piece.size(), pipe.get());
    if (count == 0) break;
    text.append(piece.data(), count);
  }
  return text;
}

void add_log(const Session& session, Dump& dump) {
  const auto lines = session.ask("log");
  std::string text;
  for (const json& line : lines && lines->is_array() ? *lines : json::array()) {
    if (line.is_string()) text += line.get<std::string>() + "\n";
  }
  if (lines) return dump.add("log", text);
  if (lines.error().code == Errc::permission_denied) return dump.miss("log", lines.error().text);
  text = journal();
  if (text.empty()) return dump.miss("log", "neither from the daemon nor in the journal");
  dump.add("log", "From the journal:\n" + text);
}

// Nothing if it is no flight record. Who owns the directory is not who asks: a link that lies there
// would have any file go into the archive.
std::optional<std::string> read_flight(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  const bool is_record = file && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
                         info.st_nlink == 1 &&
                         static_cast<std::uintmax_t>(info.st_size) <= kMaxFlightBytes;
  if (!is_record) return std::nullopt;
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + done, text.size() - done);
    if (count <= 0) return std::nullopt;
    done += static_cast<std::size_t>(count);
  }
  return text;
}

// The newest ones; they hold names, sizes and times of operations.
void add_flights(const std::vector<std::string>& directories, Dump& dump) {
  std::vector<fs::directory_entry> found;
  for (const std::string& directory : directories) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename();
      std::error_code of_entry;
      const bool is_file = entry.symlink_status(of_entry).type() == fs::file_type::regular;
      if (name.starts_with("flight-") && name.size() < 60 && is_file) found.push_back(entry);
    }
    if (error) dump.miss("flight records", directory + ": " + error.message());
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    std::error_code ignored;
    return a.last_write_time(ignored) > b.last_write_time(ignored);
  });
  for (std::size_t i = 0; i < std::min(found.size(), kMaxFlights); ++i) {
    auto text = read_flight(found[i].path());
    if (!text) {
      dump.miss(found[i].path(), "cannot be read, is too large, or is not a file of its own");
      continue;
    }
    dump.add("flights/" + found[i].path().filename().string(), *std::move(text));
  }
}

std::string default_folder() {
  utsname machine{};
  ::uname(&machine);
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return fmt::format("tern-dump-{:.32}-{}", machine.nodename, text.data());
}

}  // namespace

ExitCode write_dump(const Session& session, std::string path) {
  const std::string folder = default_folder();
  Dump dump(folder);
  json answers = json::object();
  bool alive = true;
  for (const char* verb : kAnswers) {
    auto answer = alive ? session.ask(verb) : Result<json>(json());
    if (alive && answer) {
      dump.add(fmt::format("{}.json", verb), json_text(*answer, 2) + "\n");
      answers[verb] = std::move(*answer);
    } else if (alive) {
      dump.miss(verb, answer.error().text);
      // One that is gone is not asked again and again.
      alive = answer.error().code != Errc::daemon_absent && answer.error().code != Errc::timeout;
    } else {
      dump.miss(verb, "the daemon does not answer");
    }
  }
  const bool has_status = alive && answers.contains("status");
  const Machine machine =
      read_machine(has_status ? text_field(answers["status"], "advertise") : "");
  // What this user is not shown is null, which the doctor understands.
  dump.add("doctor",
           render_findings(
               has_status ? examine(machine, {answers["status"], answers["host"], answers["peers"],
                                              answers["counters"], answers["clients"]})
                          : examine_machine(machine)));
  if (auto file = counters_of_file(counters::path_beside(session.socket_path)); file) {
    dump.add("counters-file.json",
             json_text({{"note", file->note}, {"counters", file->counters}}, 2) + "\n");
  } else {
    dump.miss("counters file", file.error().text);
  }
  add_log(session, dump);
  add_flights(flight_directories(answers.value("host", json()), session.socket_path), dump);
  if (path.empty()) path = folder + ".tar.gz";
  if (auto status = dump.write(path); !status) return explain(status.error());
  fmt::print(stderr, "{} files in {}{}\n", dump.count(), path,
             dump.complete() ? "" : "; README inside says what is missing");
  return ExitCode::ok;
}

}  // namespace tern::ctl
