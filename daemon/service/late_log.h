#pragma once

#include <spdlog/sinks/sink.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace tern::daemon {

// A sink of the log that hands lines to another one on a thread of its own: whoever logs waits for
// no journal, terminal or pipe. Lines that do not fit are counted, and the log says how many are
// missing, where they are. The other sink sees the LogFields of each line.
//
// Thread: any.
class LateLog final : public spdlog::sinks::sink {
 public:
  // So much text may wait, with what is kept beside each line.
  static constexpr std::size_t kMostWaiting = std::size_t{1} << 20;

  // `patience`: how long its end, or settle(), waits for what has been logged.
  explicit LateLog(spdlog::sink_ptr to, std::chrono::milliseconds patience = kPatience);
  LateLog(const LateLog&) = delete;
  LateLog& operator=(const LateLog&) = delete;
  // What is not written by then may be lost.
  ~LateLog() override;

  void log(const spdlog::details::log_msg& message) override;
  // Returns when all that was logged before has been written, which it answers, or patience is out;
  // once it was, at once.
  bool settle();
  void flush() override { settle(); }
  // REQUIRES: nothing has been logged yet.
  void set_pattern(const std::string& pattern) override;
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

 private:
  static constexpr std::chrono::seconds kPatience{2};

  class Shared;
  const std::chrono::milliseconds patience_;
  // The thread's too, which may be in the other sink for ever.
  std::shared_ptr<Shared> shared_;
};

}  // namespace tern::daemon
