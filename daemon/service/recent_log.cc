#include "daemon/service/recent_log.h"

#include <spdlog/sinks/ringbuffer_sink.h>

namespace tern::daemon {
namespace {

constexpr std::size_t kLines = 500;

const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt>& ring() {
  static const auto kSink = [] {
    auto made = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kLines);
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    return made;
  }();
  return kSink;
}

}  // namespace

std::shared_ptr<spdlog::sinks::sink> recent_log_sink() { return ring(); }

std::vector<std::string> recent_log() {
  std::vector<std::string> lines = ring()->last_formatted();
  for (std::string& line : lines) line.erase(line.find_last_not_of('\n') + 1);
  return lines;
}

}  // namespace tern::daemon
