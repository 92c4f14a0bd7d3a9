#pragma once

#include <spdlog/sinks/ringbuffer_sink.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/service/log.h"

namespace tern::daemon {

// The lines of this process's log while it lives.
class LogLines {
 public:
  LogLines() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(make_logger(sink_));
    sink_->set_pattern("%v");
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  ~LogLines() { spdlog::set_default_logger(before_); }

  std::vector<std::string> seen() const {
    std::vector<std::string> lines = sink_->last_formatted();
    for (std::string& line : lines) line.erase(line.find_last_not_of('\n') + 1);
    return lines;
  }

 private:
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> sink_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(10'000);
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace tern::daemon
