#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

thread_local LogFields fields_of_thread;

}  // namespace

const LogFields& current_log_fields() noexcept { return fields_of_thread; }

LogScope::LogScope(const LogFields& fields) noexcept : outer_(fields_of_thread) {
  const auto add = [](std::string_view& to, std::string_view value) {
    if (!value.empty()) to = value;
  };
  add(fields_of_thread.job, fields.job);
  add(fields_of_thread.group, fields.group);
  add(fields_of_thread.peer, fields.peer);
  add(fields_of_thread.tensor, fields.tensor);
}

LogScope::~LogScope() { fields_of_thread = outer_; }

}  // namespace tern::daemon
