#include "shm/absent_pages.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/fd.h"

namespace tern::shm {
namespace {

// Since Linux 5.11. A userfaultfd that also serves faults of the kernel itself needs a privilege;
// this one serves none, and asks for faults of the process alone.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

struct Answerer {
  Fd file;
  int error = 0;
};

// Its descriptor stays open: without it the kernel would find memory again.
Answerer make_answerer() {
  for (const int mode : {UFFD_USER_MODE_ONLY, 0}) {
    Fd file(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | mode)));
    if (!file && errno == EINVAL && mode != 0) continue;  // an older kernel
    if (!file) return {Fd{}, errno};
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM;
    if (::ioctl(file.get(), UFFDIO_API, &api) != 0) return {Fd{}, errno};
    return {std::move(file), 0};
  }
  return {Fd{}, EINVAL};
}

const Answerer& answerer() {
  static const Answerer kAnswerer = make_answerer();
  return kAnswerer;
}

}  // namespace

Status can_leave_absent() {
  if (answerer().file) return {};
  return fail_errno(Errc::unsupported, "userfaultfd is not to be had", answerer().error);
}

Status leave_absent(std::span<std::byte> part) {
  if (Status able = can_leave_absent(); !able) return able;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + part.size()) / page * page;
  if (end <= first) return {};
  uffdio_register range{};
  range.range.start = first;
  range.range.len = end - first;
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (::ioctl(answerer().file.get(), UFFDIO_REGISTER, &range) != 0) {
    return fail_errno(Errc::unsupported, "userfaultfd does not take this memory", errno);
  }
  return {};
}

}  // namespace tern::shm
