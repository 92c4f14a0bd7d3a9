#include "daemon/service/supervisor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include <vector>

namespace tern::daemon {

void Supervisor::notify(const std::string& state) {
  // A supervisor that does not listen any more is no reason to stop serving.
  (void)sd_notify(0, state.c_str());
}

void Supervisor::ready(const std::string& text) {
  last_status_ = text;
  notify("READY=1\nSTATUS=" + text);
}

void Supervisor::reloading() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto usec = std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
  notify("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(usec) +
         "\nSTATUS=reading the configuration again");
}

void Supervisor::stopping() { notify("STOPPING=1\nSTATUS=waiting for operations in flight"); }

void Supervisor::alive() { notify("WATCHDOG=1"); }

void Supervisor::status(const std::string& text) {
  if (text == last_status_) return;
  last_status_ = text;
  notify("STATUS=" + text);
}

std::uint64_t Supervisor::watchdog_ns() {
  std::uint64_t usec = 0;
  return sd_watchdog_enabled(0, &usec) > 0 ? usec * 1'000 : 0;
}

Result<Fd> take_client_socket(const std::string& path) {
  // The environment is cleared: a second call finds none.
  const int count = sd_listen_fds(1);
  if (count < 0) return fail_errno(Errc::io_error, "the sockets of systemd", -count);
  std::vector<Fd> handed_over;
  handed_over.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) handed_over.emplace_back(SD_LISTEN_FDS_START + i);
  if (handed_over.empty()) return Fd();
  if (handed_over.size() > 1) {
    return fail(Errc::invalid_argument,
                "systemd handed over " + std::to_string(count) +
                    " sockets; ternd takes one, for clients: keep one Listen line in ternd.socket");
  }
  const int fd = handed_over.front().get();
  if (sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, nullptr, 0) <= 0) {
    return fail(Errc::invalid_argument,
                "systemd handed over what is not a listening Unix socket of packets; "
                "ternd.socket needs ListenSequentialPacket=" +
                    path);
  }
  if (sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, path.c_str(), 0) <= 0) {
    return fail(Errc::invalid_argument,
                "socket: is " + path +
                    ", but systemd listens elsewhere; give "
                    "ListenSequentialPacket= of ternd.socket and this setting the same path");
  }
  if (::fcntl(fd, F_SETFL, O_NONBLOCK) != 0) return fail_errno(Errc::io_error, path, errno);
  return std::move(handed_over.front());
}

}  // namespace tern::daemon
