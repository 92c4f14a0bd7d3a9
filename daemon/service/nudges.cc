#include "daemon/service/nudges.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

namespace tern::daemon {
namespace {

constexpr long kEveryNs = 100'000;

// Without SA_RESTART. One that is ignored, as SIGURG is by itself, would not end a sleep.
bool handle_signal() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  return ::sigaction(SIGURG, &action, nullptr) == 0;
}

}  // namespace

Nudges::Nudges() {
  static const bool kIsHandled = handle_signal();
  if (!kIsHandled) return;
  sigset_t urgent;
  ::sigemptyset(&urgent);
  ::sigaddset(&urgent, SIGURG);
  ::pthread_sigmask(SIG_UNBLOCK, &urgent, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGURG;
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));  // glibc has no name for it
  timer_t timer{};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return;
  timer_ = timer;
  const itimerspec often{{0, kEveryNs}, {0, kEveryNs}};
  ::timer_settime(timer, 0, &often, nullptr);
}

Nudges::~Nudges() {
  if (timer_) ::timer_delete(*timer_);
}

}  // namespace tern::daemon
