#pragma once

// Lines of the log that say whom they are about. On a terminal only the text appears; in the
// journal the fields can be searched, `journalctl TERN_GROUP=1f2e3d4c`.

#include <spdlog/spdlog.h>

#include <memory>
#include <string_view>
#include <utility>

namespace tern::daemon {

// Whose lines are one line each, to every sink: what others have named, a job or a tensor, cannot
// end a line, steer a terminal or turn the text around (base/printable.h).
std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink);

// Empty: not about one.
struct LogFields {
  std::string_view job = {}, group = {}, peer = {}, tensor = {};
};

// Of the line that this thread is logging, or is writing for another (daemon/service/late_log.h).
const LogFields& current_log_fields() noexcept;

// Adds fields to all lines that this thread logs while it lives. An inner one goes before an outer
// one. REQUIRES: what the fields refer to outlives it.
class LogScope {
 public:
  explicit LogScope(const LogFields& fields) noexcept;
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;
  ~LogScope();

 private:
  LogFields outer_;
};

template <typename... Args>
void log_about(const LogFields& fields, spdlog::level::level_enum level,
               spdlog::format_string_t<Args...> format, Args&&... args) {
  const LogScope scope(fields);
  spdlog::log(level, format, std::forward<Args>(args)...);
}

}  // namespace tern::daemon
