#include "daemon/service/disposal.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
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

// A thread that gets no processor, wherever it is: until the test lets it, it does nothing.
class Halt {
 public:
  explicit Halt(pid_t thread) {
    halted = 0;
    may_go_on = 0;
    struct sigaction action {};
    action.sa_handler = [](int) {
      halted = 1;
      while (may_go_on == 0) std::this_thread::yield();
    };
    ::sigaction(SIGUSR1, &action, &before_);
    ::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR1);
    while (halted == 0) std::this_thread::yield();
  }
  ~Halt() {
    may_go_on = 1;
    ::sigaction(SIGUSR1, &before_, nullptr);
  }
  Halt(const Halt&) = delete;
  Halt& operator=(const Halt&) = delete;

 private:
  static inline std::atomic<int> halted, may_go_on;
  struct sigaction before_ {};
};

bool sleeps_on_a_futex(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  long number = -1;
  return file >> number && number == SYS_futex;
}

// The thread that has disposed of something of the user and looks for more.
pid_t idle_thread_after(Disposal& disposal, std::uint32_t user) {
  std::atomic<pid_t> thread{0};
  disposal.take(user, [&thread] {
    thread = ::gettid();
    return false;
  });
  while (thread == 0 || !sleeps_on_a_futex(thread)) std::this_thread::yield();
  return thread;
}

TEST(DisposalTest, WhoLeavesThingsWaitsForNoThread) {
  constexpr std::uint32_t kCarol = 1003;
  Disposal disposal;
  std::latch last(1);
  std::atomic<pid_t> giver{0};
  std::atomic<bool> has_given{false};
  std::thread thread;
  {
    const Halt halt(idle_thread_after(disposal, kAlice));
    thread = std::thread([&] {
      giver = ::gettid();
      disposal.take(kAlice, [] { return false; });  // would be for the thread that is halted
      idle_thread_after(disposal, kBob);
      disposal.take(kCarol, counting_down(last));
      has_given = true;
    });
    // A sanitizer has locks of its own, for a moment.
    constexpr int kForGood = 1000;
    int looks_asleep = 0;
    while (!has_given && looks_asleep < kForGood) {
      looks_asleep = giver != 0 && sleeps_on_a_futex(giver) ? looks_asleep + 1 : 0;
    }
    EXPECT_LT(looks_asleep, kForGood);
  }
  thread.join();
  last.wait();
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

// While it lives no thread can be started: its stack would be larger than any address space.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 60);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(DisposalTest, ThreadsThatCouldNotBeHadAreTriedForAgain) {
  std::latch begun(1), may_end(1), of_bob(2);
  Disposal disposal;
  {
    const NoThreads none;
    disposal.take(kAlice, stuck_until(begun, may_end));
    disposal.take(kBob, counting_down(of_bob));
    EXPECT_EQ(disposal.count(), 2u);
  }
  disposal.take(kBob, counting_down(of_bob));  // no fresh user's
  begun.wait();
  of_bob.wait();
  may_end.count_down();
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
