/* Loaded before a daemon: it finds no SO_PASSRIGHTS, as on kernels before Linux 6.16. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kSoPassRights = 83 };

int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) {
  if (level == SOL_SOCKET && name == kSoPassRights) {
    errno = ENOPROTOOPT;
    return -1;
  }
  return (int)syscall(SYS_setsockopt, fd, level, name, value, bytes);
}
