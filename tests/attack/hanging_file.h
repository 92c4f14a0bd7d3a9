#pragma once

#include "base/fd.h"

namespace tern::attack {

// A file of a file system in user space, any close of which waits for an answer that never comes.
// REQUIRES: root in a user namespace with a mount namespace of its own, and an alarm that ends this
// process: with it goes the server, without which nobody would ever be released.
class HangingFile {
 public:
  HangingFile();
  ~HangingFile() { file_.release(); }
  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;

  // Negative: such a file system cannot be had here.
  int fd() const noexcept { return file_.get(); }

 private:
  Fd file_;
};

}  // namespace tern::attack
