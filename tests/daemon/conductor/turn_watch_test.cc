#include "daemon/conductor/turn_watch.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// A carrier that is slow once, when the lane looks at it.
class SlowTransport final : public net::Transport {
 public:
  SlowTransport(net::Transport& inner, ManualClock& clock) : inner_(inner), clock_(clock) {}
  const char* name() const noexcept override { return "slow"; }
  std::unique_ptr<net::Connection> connect(const net::Endpoint& endpoint,
                                           net::ConnectionSink& sink) override {
    return inner_.connect(endpoint, sink);
  }
  std::unique_ptr<net::Connection> adopt(std::unique_ptr<net::Incoming> incoming,
                                         net::ConnectionSink& sink) override {
    return inner_.adopt(std::move(incoming), sink);
  }
  int poll() override {
    clock_.advance_ns(std::exchange(next_poll_ns, 0));
    return inner_.poll();
  }

  std::uint64_t next_poll_ns = 0;

 private:
  net::Transport& inner_;
  ManualClock& clock_;
};

class TurnWatchTest : public PartRig {
 protected:
  TurnWatchTest() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~TurnWatchTest() override { spdlog::set_default_logger(before_); }

  void turn_of(std::uint64_t ns) {
    watch_.begin();
    watch_.step("on_group_join");
    clock_.advance_ns(ns);
    watch_.end();
  }
  void lane_turn_of(std::uint64_t ns) {
    carrier_.next_poll_ns = ns;
    lane_.do_work(clock_.now_ns());
  }
  // How often the log has it.
  std::size_t told(const std::string& text) const {
    const std::string all = log_.str();
    std::size_t count = 0;
    for (auto at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++count;
    return count;
  }

  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_;
  SlowTransport carrier_{transport_, clock_};
  Lane lane_{{}, LaneClients::Surroundings{clock_, carrier_}, self_};
  TurnWatch watch_{clock_, counters_, {&lane_}};
};

TEST_F(TurnWatchTest, NamesTheHandlerOfATurnThatWasTooLong) {
  turn_of(20 * kMs);
  EXPECT_EQ(log_.str(), "");
  turn_of(21 * kMs);
  EXPECT_EQ(told("conductor turn of 21 ms in on_group_join"), 1u) << log_.str();
  EXPECT_EQ(counters_->turns_over_budget.load(), 1u);
  EXPECT_EQ(counters_->turns_20ms.load(), 1u);
  EXPECT_EQ(counters_->conductor_longest_turn_ns.load(), 21 * kMs);
}

TEST_F(TurnWatchTest, TellsOfEachThreadOnceASecond) {
  for (int i = 0; i < 10; ++i) turn_of(30 * kMs);
  EXPECT_EQ(told("conductor turn"), 1u);
  EXPECT_EQ(counters_->turns_over_budget.load(), 10u);
  clock_.advance_ns(kSecond);
  turn_of(30 * kMs);
  EXPECT_EQ(told("conductor turn"), 2u);
}

TEST_F(TurnWatchTest, TellsOfLanesWhichMayNot) {
  lane_turn_of(10 * kMs);
  turn_of(0);
  EXPECT_EQ(log_.str(), "");
  lane_turn_of(12 * kMs);
  lane_turn_of(0);
  turn_of(0);
  turn_of(0);
  EXPECT_EQ(told("lane 0 turn of 12 ms in links"), 1u) << log_.str();
  EXPECT_EQ(counters_->lane_longest_turn_ns.load(), 12 * kMs);
}

TEST_F(TurnWatchTest, KnowsTheLongestTurnOfEveryThread) {
  turn_of(3 * kMs);
  lane_turn_of(2 * kMs);
  EXPECT_EQ(watch_.longest_text(),
            "conductor turn of 3 ms in on_group_join, lane 0 turn of 2 ms in links");
}

}  // namespace
}  // namespace tern::daemon::conductor_test
