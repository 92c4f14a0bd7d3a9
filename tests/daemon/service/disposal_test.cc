#include "daemon/service/disposal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <vector>

namespace tern::daemon {
namespace {

constexpr std::uint32_t kAlice = 1001, kBob = 1002;

// Something whose disposal takes as long as the test likes.
Disposal::Some stuck_until(std::latch& begun, std::latch& may_end) {
  return [&begun, &may_end] {
    begun.count_down();
    may_end.wait();
    return false;
  };
}
Disposal::Some counting_down(std::latch& done) {
  return [&done] {
    done.count_down();
    return false;
  };
}

TEST(DisposalTest, OfOneUserDoesNotWaitForAnothers) {
  std::latch begun(1), may_end(1), of_bob(3), of_alice(1);
  Disposal disposal;
  disposal.take(kAlice, stuck_until(begun, may_end));
  disposal.take(kAlice, counting_down(of_alice));
  begun.wait();
  for (int i = 0; i < 3; ++i) disposal.take(kBob, counting_down(of_bob));
  of_bob.wait();
  EXPECT_FALSE(of_alice.try_wait()) << "a user has one thread at most";
  may_end.count_down();
  of_alice.wait();
}

TEST(DisposalTest, AsManyUsersAsThreadsMayBeStuck) {
  std::latch begun(Disposal::kThreads), may_end(1), of_bob(1);
  Disposal disposal;
  for (unsigned i = 0; i < Disposal::kThreads; ++i) {
    disposal.take(i, stuck_until(begun, may_end));
  }
  begun.wait();
  disposal.take(kBob, counting_down(of_bob));
  EXPECT_FALSE(of_bob.try_wait());
  EXPECT_EQ(disposal.count(), Disposal::kThreads + 1);
  may_end.count_down();
  of_bob.wait();
}

TEST(DisposalTest, ALargeThingLetsTheUsersOtherThingsPass) {
  std::latch begun(1), may_go_on(1), done(1);
  Disposal disposal;
  std::atomic<int> parts{0};
  std::atomic<int> parts_before{-1};
  disposal.take(kAlice, [&] {
    if (parts == 0) {
      begun.count_down();
      may_go_on.wait();
    }
    if (++parts < 100) return true;
    done.count_down();
    return false;
  });
  begun.wait();
  disposal.take(kAlice, [&] {
    parts_before = parts.load();
    return false;
  });
  may_go_on.count_down();
  done.wait();
  EXPECT_EQ(parts_before, 1);
}

TEST(DisposalTest, AUserIsStuckWithTooManyThings) {
  std::latch begun(1), may_end(1);
  Disposal disposal;
  EXPECT_FALSE(disposal.is_stuck(kAlice));
  disposal.take(kAlice, stuck_until(begun, may_end));
  begun.wait();
  std::latch all(Disposal::kMaxWaiting);
  for (std::size_t i = 0; i < Disposal::kMaxWaiting; ++i) {
    EXPECT_FALSE(disposal.is_stuck(kAlice)) << i;
    disposal.take(kAlice, counting_down(all));
  }
  EXPECT_TRUE(disposal.is_stuck(kAlice));
  EXPECT_FALSE(disposal.is_stuck(kBob));
  may_end.count_down();
  all.wait();
}

TEST(DisposalTest, AThingIsGoneWhenItHasBeenDisposedOf) {
  for (const auto by : {Disposal::By::caller, Disposal::By::threads}) {
    auto thing = std::make_shared<std::string>("something");
    const std::weak_ptr<std::string> watched = thing;
    {
      Disposal disposal(by);
      disposal.take_whole(kAlice, std::move(thing));
    }
    EXPECT_TRUE(watched.expired());
  }
}

TEST(DisposalTest, EndsAlthoughSomethingIsStuck) {
  // Beyond the test: the thread that is stuck uses them later than the disposal.
  static std::latch begun(1), may_end(1), ended(1);
  {
    Disposal disposal;
    disposal.take(kAlice, [] {
      begun.count_down();
      may_end.wait();
      ended.count_down();
      return false;
    });
    begun.wait();
  }
  may_end.count_down();
  ended.wait();
}

}  // namespace
}  // namespace tern::daemon
