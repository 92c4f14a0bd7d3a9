#include "daemon/service/log.h"

#include <gtest/gtest.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>

#include <memory>
#include <string>
#include <vector>

namespace tern::daemon {
namespace {

// What a sink sees of every line, as `text|job|group|peer|tensor`.
class Sink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  std::vector<std::string> seen;

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const LogFields& fields = current_log_fields();
    const std::string_view text(message.payload.data(), message.payload.size());
    seen.push_back(
        fmt::format("{}|{}|{}|{}|{}", text, fields.job, fields.group, fields.peer, fields.tensor));
  }
  void flush_() override {}
};

// The log of this process while it lives.
class Lines {
 public:
  Lines() : before_(spdlog::default_logger()) { spdlog::set_default_logger(make_logger(sink_)); }
  ~Lines() { spdlog::set_default_logger(before_); }
  const std::vector<std::string>& seen() const { return sink_->seen; }

 private:
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  std::shared_ptr<spdlog::logger> before_;
};

TEST(Log, GivesTheSinkTheFieldsOfTheLineAndOfNoOther) {
  Lines lines;
  log_about({.job = "resnet", .tensor = "layer1"}, spdlog::level::warn, "op {} failed", 7);
  spdlog::info("stopped");
  EXPECT_EQ(lines.seen(), (std::vector<std::string>{"op 7 failed|resnet|||layer1", "stopped||||"}));
}

TEST(Log, NoNameMakesALineOfItsOwnSteersATerminalOrTurnsTheTextAround) {
  Lines lines;
  const auto second = std::make_shared<Sink>();
  spdlog::default_logger()->sinks().push_back(second);
  spdlog::info("job {} is gone", "a\n2026-01-01 info all is well\x1b[8m");
  spdlog::warn("{}|{}|{}",
               // NOLINTNEXTLINE(misc-misleading-bidirectional): that is the point
               "\xe2\x80\xae"
               "gone",
               "\xc2\x9b", "\xff");
  const std::vector<std::string> expected{
      "job a\\x0a2026-01-01 info all is well\\x1b[8m is gone||||",
      "\\xe2\\x80\\xaegone|\\xc2\\x9b|\\xff||||"};
  EXPECT_EQ(lines.seen(), expected);
  EXPECT_EQ(second->seen, expected);
}

TEST(Log, AddsTheFieldsOfScopesAroundALine) {
  Lines lines;
  {
    const LogScope scope({.group = "outer", .peer = "10.0.0.5"});
    log_about({.group = "inner"}, spdlog::level::info, "ended");
    spdlog::info("after");
  }
  spdlog::info("out");
  EXPECT_EQ(lines.seen(), (std::vector<std::string>{"ended||inner|10.0.0.5|",
                                                    "after||outer|10.0.0.5|", "out||||"}));
}

}  // namespace
}  // namespace tern::daemon
