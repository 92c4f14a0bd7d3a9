#pragma once

#include <termios.h>

#include <csignal>
#include <cstddef>
#include <string_view>

namespace tern::ctl {

// The whole screen, for as long as this object lives: then, and on a signal that ends the program,
// the terminal is what it was. One in a process.
class Terminal {
 public:
  static bool is_there();  // both input and output are one

  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    std::size_t rows, columns;
  };
  Size size() const;
  void show(std::string_view text);

  // The next key; 0 when the time is over or the window has another size. After that, and before,
  // ended() says whether a signal asks to end.
  char wait_key(double seconds);
  bool ended() const;

 private:
  void enter();
  void leave();

  termios before_{};
  sigset_t mask_before_{};
};

}  // namespace tern::ctl
