#include "daemon/service/journal_sink.h"

#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

// Otherwise the lines of this file would be the place of every entry.
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <mutex>

#include "base/printable.h"

namespace tern::daemon {
namespace {

int priority_of(spdlog::level::level_enum level) noexcept {
  switch (level) {
    case spdlog::level::critical:
      return LOG_CRIT;
    case spdlog::level::err:
      return LOG_ERR;
    case spdlog::level::warn:
      return LOG_WARNING;
    case spdlog::level::info:
      return LOG_INFO;
    default:
      return LOG_DEBUG;
  }
}

class JournalSink final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    const auto entry = journal_entry(
        message.level, {message.payload.data(), message.payload.size()}, current_log_fields());
    std::vector<iovec> pieces;
    pieces.reserve(entry.size());
    for (const std::string& field : entry) {
      pieces.push_back({const_cast<char*>(field.data()), field.size()});
    }
    // A journal that is gone loses the line; stderr leads to the same journal.
    (void)sd_journal_sendv(pieces.data(), static_cast<int>(pieces.size()));
  }
  void flush_() override {}
};

}  // namespace

bool stderr_is_journal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  unsigned long long device = 0, inode = 0;
  struct stat info {};
  return stream != nullptr && std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
         ::fstat(STDERR_FILENO, &info) == 0 && info.st_dev == device && info.st_ino == inode;
}

std::vector<std::string> journal_entry(spdlog::level::level_enum level, std::string_view text,
                                       const LogFields& fields) {
  std::vector<std::string> entry{"MESSAGE=" + printable(text),
                                 "PRIORITY=" + std::to_string(priority_of(level)),
                                 "SYSLOG_IDENTIFIER=ternd"};
  const auto add = [&entry](const char* name, std::string_view value) {
    if (!value.empty()) entry.push_back(name + printable(value));
  };
  add("TERN_JOB=", fields.job);
  add("TERN_GROUP=", fields.group);
  add("TERN_PEER=", fields.peer);
  add("TERN_TENSOR=", fields.tensor);
  return entry;
}

std::shared_ptr<spdlog::sinks::sink> make_journal_sink() { return std::make_shared<JournalSink>(); }

}  // namespace tern::daemon
