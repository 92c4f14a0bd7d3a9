#include "daemon/service/log.h"

#include "base/printable.h"

namespace tern::daemon {
namespace {

thread_local LogFields fields_of_thread;

class PrintableLogger final : public spdlog::logger {
 public:
  explicit PrintableLogger(spdlog::sink_ptr sink) : spdlog::logger("ternd", std::move(sink)) {}

 private:
  // The only way of a line to the sinks.
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    if (is_printable(text)) return spdlog::logger::sink_it_(message);
    const std::string escaped = printable(text);
    spdlog::details::log_msg made = message;
    made.payload = escaped;
    spdlog::logger::sink_it_(made);
  }
};

}  // namespace

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink) {
  return std::make_shared<PrintableLogger>(std::move(sink));
}

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
