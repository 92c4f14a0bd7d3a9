#include "rdma/attempts.h"

#include <gtest/gtest.h>

namespace tern::rdma {
namespace attempts_test {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

class AttemptsTest : public ::testing::Test {
 protected:
  AttemptsTest() { clock.advance_ns(100 * kSecond); }
  Attempts attempts(const char* peer = "one") { return {troubles, peer, clock, settings}; }

  ManualClock clock;
  RdmaSettings settings;
  PeerTroubles troubles;
};

TEST_F(AttemptsTest, NothingIsDueOrWaitedForAtFirst) {
  Attempts one = attempts();
  EXPECT_FALSE(one.must_wait(Choice::if_possible));
  EXPECT_FALSE(one.is_due());
  EXPECT_EQ(one.failovers(), 0u);
}

TEST_F(AttemptsTest, AFailureMakesAllConnectionsToThePeerWait) {
  Attempts one = attempts(), sibling = attempts(), other = attempts("two");
  one.note_failure("a cable", Fault::path);
  EXPECT_TRUE(one.must_wait(Choice::if_possible));
  EXPECT_TRUE(sibling.must_wait(Choice::if_possible));
  EXPECT_EQ(sibling.trouble(), "a cable");
  EXPECT_FALSE(other.must_wait(Choice::if_possible));
  clock.advance_ns(settings.retry_ns - 1);
  EXPECT_FALSE(one.is_due());
  clock.advance_ns(1);
  EXPECT_TRUE(one.is_due());
  EXPECT_FALSE(one.must_wait(Choice::if_possible));
  EXPECT_FALSE(sibling.is_due()) << "it has not failed, and waits only if it is told to";
}

TEST_F(AttemptsTest, OffersWaitAfterManyThatWereGivenUpOneAfterTheOther) {
  Attempts one = attempts(), other = attempts("two");
  int given_up = 0;
  for (; given_up < 100 && !one.must_wait(Choice::if_possible); ++given_up)
    one.note_abandoned("gone");
  EXPECT_LT(given_up, 100);
  EXPECT_FALSE(other.must_wait(Choice::if_possible));
  clock.advance_ns(settings.retry_ns);
  EXPECT_FALSE(one.must_wait(Choice::if_possible));
  for (int i = 0; i < 200; ++i) {
    if (i % (given_up - 1) == 0) one.note_opened();
    one.note_abandoned("gone");
    ASSERT_FALSE(one.must_wait(Choice::if_possible)) << i << ": one has come to its end between";
  }
}

TEST_F(AttemptsTest, WhoDidNotTakeTheLastFramesIsNotWaitedForForAWhile) {
  Attempts one = attempts(), sibling = attempts(), other = attempts("two");
  EXPECT_TRUE(one.may_await_end());
  one.note_unheard_end();
  EXPECT_FALSE(sibling.may_await_end());
  EXPECT_TRUE(other.may_await_end());
  clock.advance_ns(settings.retry_ns);
  EXPECT_TRUE(sibling.may_await_end());
}

TEST_F(AttemptsTest, NoAttemptWaitsWhereRdmaIsRequired) {
  Attempts one = attempts();
  one.note_failure("a cable", Fault::path);
  EXPECT_TRUE(one.must_wait(Choice::if_possible));
  EXPECT_FALSE(one.must_wait(Choice::required));
}

TEST_F(AttemptsTest, FailuresOfThePathAreTriedEverMoreRarely) {
  Attempts one = attempts();
  std::uint64_t wait = settings.retry_ns;
  for (int i = 0; i < 9; ++i) {
    one.note_failure("a cable", Fault::path);
    clock.advance_ns(wait - 1);
    EXPECT_TRUE(one.must_wait(Choice::if_possible)) << i;
    clock.advance_ns(1);
    EXPECT_FALSE(one.must_wait(Choice::if_possible)) << i;
    wait = std::min(2 * wait, 64 * settings.retry_ns);
  }
}

TEST_F(AttemptsTest, FailuresOfOurOwnAreTriedAtTheSameRate) {
  Attempts one = attempts();
  for (int i = 0; i < 5; ++i) {
    one.note_failure("no device", Fault::ours);
    clock.advance_ns(settings.retry_ns);
    EXPECT_FALSE(one.must_wait(Choice::if_possible)) << i;
  }
}

TEST_F(AttemptsTest, ConnectionsThatFailTogetherAreOneFailure) {
  Attempts one = attempts(), sibling = attempts();
  one.note_failure("a cable", Fault::path);
  sibling.note_failure("a cable", Fault::path);
  clock.advance_ns(settings.retry_ns);
  EXPECT_FALSE(one.must_wait(Choice::if_possible));
  EXPECT_EQ(troubles.of("one").failures, 1u);
}

TEST_F(AttemptsTest, APathThatHasWorkedIsNotOneThatNeverWorks) {
  Attempts one = attempts();
  for (int i = 0; i < 3; ++i) {
    one.note_failure("a cable", Fault::path);
    clock.advance_ns(64 * settings.retry_ns);
  }
  one.note_opened();
  EXPECT_EQ(one.trouble(), "");
  EXPECT_FALSE(one.is_due());
  clock.advance_ns(settings.retry_ns);
  one.note_failure("another cable", Fault::path);
  clock.advance_ns(settings.retry_ns);
  EXPECT_FALSE(one.must_wait(Choice::if_possible)) << "it counts from one again";
}

TEST_F(AttemptsTest, AGoodEndForgivesOnlyAPathThatHasWorkedForAWhile) {
  Attempts one = attempts();
  one.note_failure("a cable", Fault::path);
  clock.advance_ns(settings.retry_ns);
  one.note_opened();
  one.note_good_end();
  EXPECT_EQ(troubles.of("one").failures, 1u);
  clock.advance_ns(settings.retry_ns);
  one.note_good_end();
  EXPECT_EQ(troubles.of("one").failures, 0u);
}

TEST_F(AttemptsTest, OpeningKeepsAFailureOfAnotherConnectionThatStillWaits) {
  Attempts one = attempts(), sibling = attempts();
  sibling.note_failure("a cable", Fault::path);
  one.note_opened();
  EXPECT_EQ(one.trouble(), "a cable");
}

TEST_F(AttemptsTest, OffersThatComeTooOftenAreNotTaken) {
  Attempts one = attempts();
  EXPECT_TRUE(one.may_take_offer());
  EXPECT_FALSE(one.may_take_offer());
  clock.advance_ns(std::min(settings.setup_timeout_ns, settings.retry_ns / 2));
  EXPECT_TRUE(one.may_take_offer());
}

TEST_F(AttemptsTest, AnOfferThatThePeerDeclinesForItsPathWaitsTwiceAsLongEachTime) {
  Attempts one = attempts();
  for (const std::uint64_t times : {1u, 2u, 4u, 8u}) {
    one.note_decline(Fault::path);
    clock.advance_ns(times * settings.retry_ns - 1);
    EXPECT_FALSE(one.is_due());
    clock.advance_ns(1);
    EXPECT_TRUE(one.is_due());
  }
  one.note_decline(Fault::ours);
  clock.advance_ns(settings.retry_ns);
  EXPECT_TRUE(one.is_due());
}

TEST_F(AttemptsTest, CountsFailoversOfAllConnectionsToThePeer) {
  Attempts one = attempts(), sibling = attempts();
  one.note_failover();
  sibling.note_failover();
  EXPECT_EQ(one.failovers(), 2u);
}

}  // namespace
}  // namespace attempts_test
}  // namespace tern::rdma
