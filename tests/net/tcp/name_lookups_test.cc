#include "net/tcp/name_lookups.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/net/tcp/gated_names.h"

namespace tern::net {
namespace {

constexpr std::uint64_t kAlice = 1001, kBob = 1002;

// An answer that can be waited for.
class Wish {
 public:
  Wish(NameLookups& lookups, const std::string& name, std::uint64_t user) {
    request_ = lookups.ask(
        name, user, [this](const NameLookups::Answer& answer) { answer_.set_value(answer); });
  }
  NameLookups::Answer wait() { return answer_.get_future().get(); }

 private:
  std::promise<NameLookups::Answer> answer_;
  NameLookups::Request request_;  // last: nobody answers what is gone
};

class NameLookupsTest : public ::testing::Test {
 protected:
  ~NameLookupsTest() override { names_->open(); }

  std::shared_ptr<GatedNames> names_ = std::make_shared<GatedNames>();
  ManualClock clock_;
  NameLookups lookups_{clock_,
                       [names = names_](const std::string& name) { return names->look_up(name); }};
};

TEST_F(NameLookupsTest, SlowNamesOfOneUserDoNotDelayAnothers) {
  std::vector<std::unique_ptr<Wish>> alices;
  alices.reserve(40);
  for (int i = 0; i < 40; ++i) {
    alices.push_back(std::make_unique<Wish>(lookups_, "slow" + std::to_string(i), kAlice));
  }
  names_->wait_for("slow0");
  EXPECT_EQ(Wish(lookups_, "quick", kBob).wait().addresses.size(), 1u);
  EXPECT_EQ(Wish(lookups_, "another", kBob).wait().addresses.size(), 1u);
  EXPECT_EQ(names_->most_slow_at_once(), 1);
}

TEST_F(NameLookupsTest, AsManyUsersMayBeSlowAsThereAreThreadsButOne) {
  std::vector<std::unique_ptr<Wish>> slow;
  for (unsigned user = 1; user < NameLookups::kThreads; ++user) {
    for (const char* name : {"slow", "slower", "slowest"}) {
      slow.push_back(std::make_unique<Wish>(lookups_, name + std::to_string(user), user));
    }
  }
  EXPECT_EQ(Wish(lookups_, "quick", kBob).wait().addresses.size(), 1u);
}

// Whose turn it is goes round, so that who has many names gets no more turns.
TEST_F(NameLookupsTest, AnUserThatComesIsServedBeforeTheNextNamesOfOthers) {
  std::vector<std::unique_ptr<Wish>> slow;
  for (unsigned user = 1; user <= NameLookups::kThreads; ++user) {
    for (const char* name : {"slow", "slower"}) {
      slow.push_back(std::make_unique<Wish>(lookups_, name + std::to_string(user), user));
    }
    names_->wait_for("slow" + std::to_string(user));
  }
  Wish late(lookups_, "quick", kBob);
  names_->let("slow3");
  EXPECT_EQ(late.wait().addresses.size(), 1u);
}

// It would wait until another name comes, which may be never.
TEST_F(NameLookupsTest, WithoutAThreadANameIsAnsweredAtOnce) {
  bool has_threads = false;
  NameLookups lookups(
      clock_, [names = names_](const std::string& name) { return names->look_up(name); },
      [&has_threads](std::function<void()> work) {
        if (has_threads) std::thread(std::move(work)).detach();
        return has_threads;
      });
  EXPECT_EQ(Wish(lookups, "quick", kBob).wait().trouble,
            "the daemon can start no thread to look names up; give addresses");
  has_threads = true;
  EXPECT_EQ(Wish(lookups, "quick", kBob).wait().addresses.size(), 1u);
  has_threads = false;
  EXPECT_EQ(Wish(lookups, "another", kAlice).wait().addresses.size(), 1u) << "by that one";
}

TEST_F(NameLookupsTest, TooManyNamesOfOneUserAreRefused) {
  std::vector<std::unique_ptr<Wish>> slow;
  slow.push_back(std::make_unique<Wish>(lookups_, "slow", kAlice));
  names_->wait_for("slow");
  for (std::size_t i = 0; i < NameLookups::kMaxWaiting; ++i) {
    slow.push_back(std::make_unique<Wish>(lookups_, "slow" + std::to_string(i), kAlice));
  }
  const NameLookups::Answer refused = Wish(lookups_, "one more", kAlice).wait();
  EXPECT_TRUE(refused.addresses.empty());
  EXPECT_NE(refused.trouble.find("too many names"), std::string::npos) << refused.trouble;
  // What is given up makes room.
  slow.pop_back();
  Wish fits(lookups_, "fits", kAlice);
  names_->open();
  EXPECT_EQ(fits.wait().addresses.size(), 1u);
}

TEST_F(NameLookupsTest, KeepsAnswersForAWhile) {
  EXPECT_EQ(Wish(lookups_, "quick", kAlice).wait().addresses.size(), 1u);
  clock_.advance_ns(NameLookups::kFoundNs - 1);
  EXPECT_EQ(Wish(lookups_, "quick", kBob).wait().addresses.size(), 1u);
  EXPECT_EQ(names_->times("quick"), 1);
  clock_.advance_ns(1);
  EXPECT_EQ(Wish(lookups_, "quick", kBob).wait().addresses.size(), 1u);
  EXPECT_EQ(names_->times("quick"), 2);
}

TEST_F(NameLookupsTest, KeepsThatThereIsNoSuchNameForAShorterWhile) {
  EXPECT_EQ(Wish(lookups_, "missing", kAlice).wait().trouble, "no such name");
  clock_.advance_ns(NameLookups::kMissingNs - 1);
  EXPECT_EQ(Wish(lookups_, "missing", kAlice).wait().trouble, "no such name");
  EXPECT_EQ(names_->times("missing"), 1);
  clock_.advance_ns(1);
  EXPECT_EQ(Wish(lookups_, "missing", kAlice).wait().trouble, "no such name");
  EXPECT_EQ(names_->times("missing"), 2);
}

TEST_F(NameLookupsTest, LooksUpNothingThatNobodyWantsAnyMore) {
  Wish slow(lookups_, "slow", kAlice);
  names_->wait_for("slow");
  { const Wish given_up(lookups_, "given up", kAlice); }
  Wish last(lookups_, "last", kAlice);
  names_->open();
  EXPECT_EQ(last.wait().addresses.size(), 1u);
  EXPECT_EQ(names_->times("given up"), 0);
}

TEST_F(NameLookupsTest, OneAnswerIsForAllWhoAsked) {
  Wish slow(lookups_, "slow", kAlice);
  names_->wait_for("slow");
  Wish of_alice(lookups_, "quick", kAlice);
  EXPECT_EQ(Wish(lookups_, "quick", kBob).wait().addresses.size(), 1u);
  EXPECT_EQ(of_alice.wait().addresses.size(), 1u);  // while her own look-up is stuck
}

TEST_F(NameLookupsTest, AnotherUserHastensWhatWaitsForTheFirst) {
  Wish slow(lookups_, "slow", kAlice);
  names_->wait_for("slow");
  Wish shared(lookups_, "quick", kAlice);
  lookups_.hasten("quick", kBob);
  EXPECT_EQ(shared.wait().addresses.size(), 1u);
}

// A daemon asks for more speed with each join that waits for the name.
TEST_F(NameLookupsTest, HowOftenANameIsHastenedTakesNoPlacesOfOthers) {
  Wish slow(lookups_, "slow", kAlice);
  names_->wait_for("slow");
  for (int i = 0; i < 200; ++i) lookups_.hasten("slow", kAlice);
  Wish quick(lookups_, "quick", kAlice);
  names_->let("slow");
  EXPECT_EQ(slow.wait().addresses.size(), 1u);
  const NameLookups::Answer answer = quick.wait();
  EXPECT_EQ(answer.addresses.size(), 1u) << answer.trouble;
  EXPECT_EQ(names_->times("slow"), 1);
}

TEST(NameLookups, EndsWhileALookUpIsStuck) {
  const auto names = std::make_shared<GatedNames>();
  {
    const ManualClock clock;
    NameLookups lookups(clock, [names](const std::string& name) { return names->look_up(name); });
    const Wish slow(lookups, "slow", kAlice);
    names->wait_for("slow");
  }
  names->open();
}

TEST(NameLookups, OfTheProcessAsksTheSystem) {
  Wish wish(NameLookups::of_process(), "localhost", kAlice);
  const NameLookups::Answer answer = wish.wait();
  ASSERT_FALSE(answer.addresses.empty()) << answer.trouble;
  EXPECT_TRUE(answer.addresses.front().is_loopback());
}

}  // namespace
}  // namespace tern::net
