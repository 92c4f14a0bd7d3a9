#pragma once

#include <cstddef>

#include "net/transport.h"

namespace tern::net {

// The size of a socket's send buffer, which bounds what of one connection waits in the kernel and
// in the queue of the interface. Without a bound the kernel sizes it, as ever. Two segments of the
// connection always have room.
class SendBound {
 public:
  // `fixed`: the size is a setting, and stays.
  explicit SendBound(bool fixed) noexcept : fixed_(fixed) {}

  // Makes system calls only for a change of more than an eighth. A kernel that cannot take a size
  // back (before Linux 5.14) is not asked to change it.
  void set(int socket, const QueueBound& bound) noexcept;
  bool is_set() const noexcept { return bytes_ > 0; }
  // While there is a bound, a write is one record of no more than this: the kernel lets a socket
  // that is not full have one more packet, which else is one of 64 KiB.
  std::size_t record_bytes() const noexcept { return record_bytes_; }

 private:
  bool fixed_;
  std::size_t bytes_ = 0;
  std::size_t record_bytes_ = 0;
};

}  // namespace tern::net
