#include "net/event_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/fd.h"

namespace tern::net {
namespace {

constexpr std::uint64_t kLong = 60'000'000'000;

TEST(EventLoop, AWakeBeforeTheWaitIsNotForgotten) {
  EventLoop loop;
  loop.wake();
  EXPECT_GT(loop.wait(kLong), 0);
}

TEST(EventLoop, WakesFromAnotherThread) {
  EventLoop loop;
  std::thread other([&] { loop.wake(); });
  EXPECT_GT(loop.wait(kLong), 0);
  other.join();
}

TEST(EventLoop, AWaitWithoutAnEndIsEndedByAWake) {
  EventLoop loop;
  std::thread other([&] { loop.wake(); });
  EXPECT_GT(loop.wait(EventLoop::kForeverNs), 0);
  other.join();
}

TEST(EventLoop, WaitEndsWithItsTimeout) {
  EventLoop loop;
  EXPECT_EQ(loop.wait(1'000'000), 0);
  EXPECT_EQ(loop.poll(), 0);
}

TEST(EventLoop, CallsWhoeverWatchesAReadableDescriptor) {
  EventLoop loop;
  const Fd fd(::eventfd(0, EFD_NONBLOCK));
  int calls = 0;
  const auto handle = loop.watch(duplicate(fd.get()), [&] {
    std::uint64_t count;
    EXPECT_EQ(::read(fd.get(), &count, sizeof count), 8);
    ++calls;
  });
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(::eventfd_write(fd.get(), 1), 0);
    for (int round = 0; round < 100 && calls < i; ++round) loop.wait(10'000'000);
    EXPECT_EQ(calls, i);
  }
  ASSERT_TRUE(handle);
  loop.unwatch(*handle);
  ASSERT_EQ(::eventfd_write(fd.get(), 1), 0);
  loop.wait(1'000'000);
  EXPECT_EQ(calls, 3);
}

TEST(EventLoop, AWatcherMayRemoveItself) {
  EventLoop loop;
  const Fd fd(::eventfd(1, EFD_NONBLOCK));
  int calls = 0;
  std::uint64_t handle = 0;
  handle = *loop.watch(duplicate(fd.get()), [&] {
    ++calls;
    loop.unwatch(handle);
  });
  for (int round = 0; round < 5; ++round) loop.wait(1'000'000);
  EXPECT_EQ(calls, 1);
}

std::uint64_t drain(int fd) {
  std::uint64_t count = 0;
  return ::read(fd, &count, sizeof count) == 8 ? count : 0;
}

// Counts how often it was rung when it is drained.
struct Doorbell {
  explicit Doorbell(EventLoop& loop) {
    EXPECT_TRUE(loop.watch_doorbell(duplicate(fd.get()), [this] { drained += drain(fd.get()); }));
    ring();
  }
  void ring() const { EXPECT_EQ(::eventfd_write(fd.get(), 1), 0); }

  const Fd fd{::eventfd(0, EFD_NONBLOCK)};
  std::uint64_t drained = 0;
};

// What the event brought is worked off before anything else costs a system call.
TEST(EventLoop, ADoorbellIsDrainedWhenItsWorkIsDone) {
  EventLoop loop;
  Doorbell bell(loop);
  ASSERT_EQ(loop.wait(kLong), 1);
  EXPECT_EQ(loop.poll(), 0);
  EXPECT_EQ(bell.drained, 0u);
  EXPECT_EQ(loop.poll(), 0);
  EXPECT_EQ(bell.drained, 1u);
  EXPECT_EQ(loop.wait(1'000'000), 0);
  bell.ring();
  EXPECT_EQ(loop.wait(kLong), 1);
}

// A thread says that it sleeps, looks everywhere once more, and waits: who rings after that must
// wake it, also where the ring before is not drained yet.
TEST(EventLoop, AWaitThatDrainsDoesNotSleep) {
  for (const int polls : {0, 1, 2}) {
    EventLoop loop;
    Doorbell bell(loop);
    ASSERT_EQ(loop.wait(kLong), 1);
    for (int i = 0; i < polls; ++i) loop.poll();
    bell.ring();
    loop.wake();  // a wait that sleeps would end by this, and say so
    // After two polls the first ring is drained, and the second ends a real wait.
    EXPECT_EQ(loop.wait(kLong), polls == 2 ? 1 : 0);
    EXPECT_EQ(bell.drained, polls == 2 ? 1u : 2u);
  }
}

// Those of a batch that the wait has not run are run by the second poll.
TEST(EventLoop, AWaitLeavesTheOtherEventsToThePolls) {
  EventLoop loop;
  const Fd fds[] = {Fd(::eventfd(1, EFD_NONBLOCK)), Fd(::eventfd(1, EFD_NONBLOCK)),
                    Fd(::eventfd(1, EFD_NONBLOCK))};
  std::uint64_t drained = 0;
  for (const Fd& fd : fds) {
    ASSERT_TRUE(loop.watch_doorbell(duplicate(fd.get()),
                                    [&drained, raw = fd.get()] { drained += drain(raw); }));
  }
  EXPECT_EQ(loop.wait(kLong), 1);
  EXPECT_EQ(loop.poll(), 0);
  EXPECT_EQ(drained, 0u);
  EXPECT_EQ(loop.poll(), 2);
  EXPECT_EQ(loop.poll(), 0);
  EXPECT_EQ(drained, 3u);
}

// A poll that has brought something leaves the doorbell undrained, as its wait() did; the next one
// drains it, whatever it brings.
TEST(EventLoop, APollThatRunsHandlersLeavesTheDoorbellsToTheNext) {
  EventLoop loop;
  Doorbell bell(loop);
  const Fd always(::eventfd(1, EFD_NONBLOCK));
  ASSERT_EQ(loop.wait(kLong), 1);
  ASSERT_TRUE(loop.watch(duplicate(always.get()), [] {}));
  EXPECT_EQ(loop.poll(), 0);
  EXPECT_EQ(loop.poll(), 1);
  EXPECT_EQ(bell.drained, 0u);
  EXPECT_EQ(loop.poll(), 1);
  EXPECT_EQ(bell.drained, 1u);
}

TEST(EventLoop, AWaitThatDrainsWhatAPollHasLeftDoesNotSleep) {
  EventLoop loop;
  Doorbell bell(loop);
  const Fd other(::eventfd(1, EFD_NONBLOCK));
  ASSERT_EQ(loop.wait(kLong), 1);
  ASSERT_TRUE(loop.watch(duplicate(other.get()), [&other] { drain(other.get()); }));
  EXPECT_EQ(loop.poll(), 0);
  EXPECT_EQ(loop.poll(), 1);
  bell.ring();
  loop.wake();  // a wait that sleeps would end by this, and say so
  EXPECT_EQ(loop.wait(kLong), 0);
  EXPECT_EQ(bell.drained, 2u);
  EXPECT_EQ(loop.wait(kLong), 1);
  EXPECT_EQ(loop.poll(), 0);
  EXPECT_EQ(loop.poll(), 0);
  bell.ring();
  EXPECT_EQ(loop.wait(kLong), 1);
}

// Nothing is skipped for an event whose callback has seen to it.
TEST(EventLoop, AWatchLeavesTheOthersToTheNextPoll) {
  EventLoop loop;
  const Fd fds[] = {Fd(::eventfd(1, EFD_NONBLOCK)), Fd(::eventfd(1, EFD_NONBLOCK))};
  int calls = 0;
  for (const Fd& fd : fds) {
    ASSERT_TRUE(loop.watch(duplicate(fd.get()), [&calls, raw = fd.get()] {
      EXPECT_EQ(drain(raw), 1u);
      ++calls;
    }));
  }
  EXPECT_EQ(loop.wait(kLong), 1);
  EXPECT_EQ(loop.poll(), 1);
  EXPECT_EQ(calls, 2);
}

TEST(EventLoop, AWatcherThatIsGoneDoesNotWaitAgain) {
  EventLoop loop;
  const Fd fd(::eventfd(1, EFD_NONBLOCK));
  int calls = 0;
  const auto handle = *loop.watch_doorbell(duplicate(fd.get()), [&] { ++calls; });
  ASSERT_EQ(loop.wait(kLong), 1);
  loop.unwatch(handle);
  for (int i = 0; i < 3; ++i) loop.poll();
  EXPECT_EQ(loop.wait(1'000'000), 0);
  EXPECT_EQ(calls, 0);
}

// Events come from the kernel in batches. A handler that stops watching a descriptor of its batch
// and watches another gives that one the first one's place, and its event, in Asio.
TEST(EventLoop, NobodyIsCalledForADescriptorThatWasWatchedBefore) {
  EventLoop loop;
  const Fd first(::eventfd(0, EFD_NONBLOCK)), gone(::eventfd(0, EFD_NONBLOCK));
  const Fd quiet(::eventfd(0, EFD_NONBLOCK));
  std::uint64_t gone_handle = 0, first_handle = 0;
  int calls_of_gone = 0, calls_of_quiet = 0;
  first_handle = *loop.watch(duplicate(first.get()), [&] {
    loop.unwatch(gone_handle);
    ASSERT_TRUE(loop.watch(duplicate(quiet.get()), [&] { ++calls_of_quiet; }));
    loop.unwatch(first_handle);
  });
  gone_handle = *loop.watch(duplicate(gone.get()), [&] { ++calls_of_gone; });
  loop.poll();
  ASSERT_EQ(::eventfd_write(first.get(), 1), 0);
  ASSERT_EQ(::eventfd_write(gone.get(), 1), 0);
  for (int round = 0; round < 5; ++round) loop.poll();
  EXPECT_EQ(calls_of_gone, 0);
  EXPECT_EQ(calls_of_quiet, 0);
  ASSERT_EQ(::eventfd_write(quiet.get(), 1), 0);
  loop.poll();
  EXPECT_GE(calls_of_quiet, 1);
}

// Ten descriptors that are always readable, and whose handlers take a millisecond each.
TEST(EventLoop, ABoundedPollLeavesTheOthersToTheNext) {
  ManualClock clock;
  EventLoop loop;
  loop.bound_polls(clock, 3'000'000);
  const Fd fd(::eventfd(1, EFD_NONBLOCK));
  std::array<int, 10> calls{};
  for (int& count : calls) {
    ASSERT_TRUE(loop.watch(duplicate(fd.get()), [&clock, &count] {
      clock.advance_ns(1'000'000);
      ++count;
    }));
  }
  int most = 0;
  for (int polls = 0; polls < 40; ++polls) most = std::max(most, loop.poll());
  EXPECT_EQ(most, 3);
  // And in turns: nobody is called again before all others are.
  const auto [least, highest] = std::minmax_element(calls.begin(), calls.end());
  EXPECT_GE(*least, 10);
  EXPECT_LE(*highest - *least, 1);
}

TEST(EventLoop, ABoundedPollRunsOneHandlerHoweverLongItTakes) {
  ManualClock clock;
  EventLoop loop;
  loop.bound_polls(clock, 1);
  const Fd fd(::eventfd(1, EFD_NONBLOCK));
  int calls = 0;
  ASSERT_TRUE(loop.watch(duplicate(fd.get()), [&] {
    clock.advance_ns(1'000'000'000);
    ++calls;
  }));
  for (int polls = 1; polls <= 3; ++polls) {
    EXPECT_EQ(loop.poll(), 1);
    EXPECT_EQ(calls, polls);
  }
}

// Somebody else may have taken the last descriptor.
TEST(EventLoop, SaysWhatItCannotWatch) {
  EventLoop loop;
  const auto handle = loop.watch(Fd(), [] {});
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, Errc::io_error);
}

}  // namespace
}  // namespace tern::net
