#include "ctl/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>

namespace tern::ctl {
namespace {

// Another screen, so that what was there comes back; no cursor.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr int kEnds[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

volatile std::sig_atomic_t g_ended = 0;
volatile std::sig_atomic_t g_stop = 0;

void on_end(int) { g_ended = 1; }
void on_stop(int) { g_stop = 1; }
void on_resize(int) {}  // that the wait ends is enough

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART: the wait is to end
  ::sigaction(signal, &action, nullptr);
}

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

bool Terminal::is_there() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

Terminal::Terminal() {
  // The signals come only while we wait, so that none is missed between a look and the wait.
  sigset_t blocked;
  ::sigemptyset(&blocked);
  for (const int signal : kEnds) {
    handle(signal, on_end);
    ::sigaddset(&blocked, signal);
  }
  handle(SIGTSTP, on_stop);
  handle(SIGWINCH, on_resize);
  ::sigaddset(&blocked, SIGTSTP);
  ::sigaddset(&blocked, SIGWINCH);
  ::sigprocmask(SIG_BLOCK, &blocked, &mask_before_);
  enter();
}

Terminal::~Terminal() {
  leave();
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Terminal::enter() {
  ::tcgetattr(STDIN_FILENO, &before_);
  termios keys = before_;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  keys.c_cc[VMIN] = 0;
  keys.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  put(kEnter);
}

void Terminal::leave() {
  put(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

Terminal::Size Terminal::size() const {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  return known ? Size{size.ws_row, size.ws_col} : Size{24, 80};
}

void Terminal::show(std::string_view text) {
  std::string screen = "\x1b[H";
  for (const char c : text) {
    if (c == '\n') screen += "\x1b[K";  // what was there is longer
    screen += c;
  }
  put(screen + "\x1b[K\x1b[J");
}

char Terminal::wait_key(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const timespec limit{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const int ready = ::ppoll(&input, 1, &limit, &mask_before_);
  if (g_stop != 0) {
    g_stop = 0;
    leave();
    ::raise(SIGSTOP);
    enter();  // it goes on
    return 0;
  }
  char key = 0;
  if (ready <= 0) return 0;
  // The other end of the terminal is gone.
  if (::read(STDIN_FILENO, &key, 1) != 1 || (input.revents & POLLHUP) != 0) g_ended = 1;
  return key;
}

bool Terminal::ended() const { return g_ended != 0; }

}  // namespace tern::ctl
