#pragma once

#include <spdlog/sinks/sink.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace tern::daemon {

// A sink of the log that hands lines to another one on a thread of its own: whoever logs waits for
// no journal, terminal or pipe. Lines that do not fit are counted, and the log says how many are
// missing where they are missing. The other sink sees the LogFields of each line.
//
// Thread: any.
class LateLog final : public spdlog::sinks::sink {
 public:
  // So much text may wait, with what is kept beside each line.
  static constexpr std::size_t kMostWaiting = std::size_t{1} << 20;

  // Throws std::system_error where there can be no thread.
  explicit LateLog(spdlog::sink_ptr to);
  LateLog(const LateLog&) = delete;
  LateLog& operator=(const LateLog&) = delete;
  // Waits for nothing: what is not written by the end of the process is lost.
  ~LateLog() override;

  void log(const spdlog::details::log_msg& message) override;
  // Returns when nothing waits to be written, which it answers, or when patience is out.
  bool settle(std::chrono::milliseconds patience = std::chrono::seconds(2));
  // Nothing: whoever logs may not wait.
  void flush() override {}
  // REQUIRES: nothing has been logged yet.
  void set_pattern(const std::string& pattern) override;
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

 private:
  class Shared;
  // The thread's too, which may be in the other sink for ever.
  std::shared_ptr<Shared> shared_;
};

}  // namespace tern::daemon
