#include "counters/writer_lock.h"

#include <fcntl.h>

namespace tern::counters {
namespace {

struct flock whole_file(short type) noexcept {
  struct flock lock {};  // from byte 0 on, without an end
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

bool lock_as_writer(int fd) noexcept {
  struct flock lock = whole_file(F_WRLCK);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool is_written(int fd) noexcept {
  // Only a lock for writing stands in the way of one for reading.
  struct flock lock = whole_file(F_RDLCK);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace tern::counters
