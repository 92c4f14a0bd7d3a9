#include "shm/absent_pages.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace tern::shm {
namespace {

// Since Linux 5.11: who answers for pages that the kernel itself comes to needs a privilege, which
// nobody needs who answers for none.
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
  static const Answerer one = make_answerer();
  return one;
}

}  // namespace

Status can_leave_absent() {
  if (answerer().file) return {};
  return fail_errno(Errc::unsupported, "userfaultfd is not to be had", answerer().error);
}

Status leave_absent(std::span<std::byte> part) {
  if (Status able = can_leave_absent(); !able) return able;
  uffdio_register range{};
  range.range.start = reinterpret_cast<std::uintptr_t>(part.data());
  range.range.len = part.size();
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (::ioctl(answerer().file.get(), UFFDIO_REGISTER, &range) != 0) {
    return fail_errno(Errc::unsupported, "userfaultfd does not take this memory", errno);
  }
  return {};
}

}  // namespace tern::shm
