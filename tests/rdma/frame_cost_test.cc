// What a frame costs a busy lane: no allocation and no system call. Both are of Tern's own code,
// the mock's are left out, or are none.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/rdma/busy_links.h"
#include "tests/rdma/mock/fabric.h"

namespace {

std::uint64_t allocations = 0;

void* count_and_allocate(std::size_t size) {
  if (!tern::rdma::mock::is_inside()) ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return count_and_allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tern::rdma {
namespace {

TEST(FrameCost, NoAllocationOnceWarm) {
  BusyLinks links;
  ASSERT_TRUE(links.is_open());
  // Records of frames that are not acknowledged yet keep their memory, and take turns.
  for (int i = 0; i < 20; ++i) links.exchange(200);
  const std::uint64_t before = allocations;
  const std::uint64_t received = links.sink_b.received;
  links.exchange(200);
  EXPECT_EQ(links.sink_b.received - received, 200u);
  EXPECT_EQ(allocations - before, 0u);
}

// In a process of its own, from which any system call but its end is a signal.
void forbid_system_calls() {
  struct sigaction action {};
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    // The handler may call what the filter lets through: write to the error output, and exit.
    char text[64];
    const int length = std::snprintf(text, sizeof text, "system call %d\n", info->si_syscall);
    static_cast<void>(!::write(STDERR_FILENO, text, static_cast<std::size_t>(length)));
    ::_exit(1);
  };
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSYS, &action, nullptr);
  // The number, and of write() the descriptor: the handler's is the only one.
  constexpr auto kNumber = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  constexpr auto kDescriptor = static_cast<std::uint32_t>(offsetof(seccomp_data, args));
  std::array<sock_filter, 8> filter{{{BPF_LD | BPF_W | BPF_ABS, 0, 0, kNumber},
                                     {BPF_JMP | BPF_JEQ | BPF_K, 5, 0, SYS_exit_group},
                                     {BPF_JMP | BPF_JEQ | BPF_K, 4, 0, SYS_rt_sigreturn},
                                     {BPF_JMP | BPF_JEQ | BPF_K, 0, 2, SYS_write},
                                     {BPF_LD | BPF_W | BPF_ABS, 0, 0, kDescriptor},
                                     {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, STDERR_FILENO},
                                     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_TRAP},
                                     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}}};
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("seccomp");
    ::_exit(2);
  }
}

void exchange_without_system_calls(std::uint64_t frames, bool also_a_call) {
  // What the mock takes and gives back comes from the heap that there is.
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  ::mallopt(M_TOP_PAD, 64 << 20);
  BusyLinks links;
  if (!links.is_open()) ::_exit(3);
  links.exchange(200);
  const std::uint64_t before = links.sink_b.received;
  forbid_system_calls();
  links.exchange(frames);
  if (also_a_call) ::syscall(SYS_getpid);
  ::_exit(links.sink_b.received - before == frames ? 0 : 4);
}

TEST(FrameCostDeathTest, NoSystemCallWhileBusy) {
  EXPECT_EXIT(exchange_without_system_calls(500, false), ::testing::ExitedWithCode(0), "");
}

TEST(FrameCostDeathTest, ASystemCallIsSeen) {
  EXPECT_EXIT(exchange_without_system_calls(1, true), ::testing::ExitedWithCode(1),
              "system call " + std::to_string(SYS_getpid));
}

}  // namespace
}  // namespace tern::rdma
