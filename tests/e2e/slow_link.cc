#include "tests/e2e/slow_link.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <stdexcept>

namespace tern::e2e {
namespace {

constexpr double kBurst = 64 << 10;  // bytes that pass at once after a pause, or ...
constexpr double kBurstS = 0.004;    // as many as in this time
constexpr int kBuffer = 64 << 10;    // of a socket: the queue before the link
constexpr int kTurnMs = 1;

sockaddr_in local(int port) noexcept {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void make_small(int socket) noexcept {
  const int one = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof kBuffer);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kBuffer, sizeof kBuffer);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

}  // namespace

SlowLink::SlowLink(double bytes_per_s)
    : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      bytes_per_s_(bytes_per_s),
      refilled_(std::chrono::steady_clock::now()) {
  make_small(listener_.get());  // connections have what their listener has
  sockaddr_in address = local(0);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_.get(), raw, size) != 0 || ::listen(listener_.get(), 16) != 0 ||
      ::getsockname(listener_.get(), raw, &size) != 0) {
    throw std::runtime_error("a slow link has no port");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

SlowLink::~SlowLink() {
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) == sizeof one) thread_.join();
}

void SlowLink::run() {
  for (;;) {
    wait();
    if (polled_[0].revents != 0) return;
    if (polled_[1].revents != 0) accept();
    refill();
    for (auto one = connections_.begin(); one != connections_.end();) {
      one = move(*one, 0) && move(*one, 1) ? std::next(one) : connections_.erase(one);
    }
  }
}

void SlowLink::wait() {
  polled_.assign({{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
  bool holds = false;  // what may pass in the next turn
  for (const Connection& connection : connections_) {
    for (std::size_t end = 0; end < 2; ++end) {
      polled_.push_back({connection.ends[end].get(), events(connection, end), 0});
    }
  }
  for (const double bytes : allowed_) holds = holds || bytes < 1.0;
  ::poll(polled_.data(), polled_.size(), holds ? kTurnMs : -1);
}

short SlowLink::events(const Connection& connection, std::size_t end) const noexcept {
  short wanted = 0;
  if (connection.flows[end].empty() && allowed_[end] >= 1.0) wanted |= POLLIN;
  if (!connection.flows[1 - end].empty()) wanted |= POLLOUT;
  return wanted;
}

void SlowLink::accept() {
  Fd guest(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  Fd beyond(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!guest || !beyond || target_ == 0) return;
  make_small(guest.get());
  make_small(beyond.get());
  const sockaddr_in address = local(target_);
  if (::connect(beyond.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return;
  }
  ::fcntl(beyond.get(), F_SETFL, O_NONBLOCK);
  Connection& connection = connections_.emplace_back();
  connection.ends = {std::move(guest), std::move(beyond)};
}

void SlowLink::refill() noexcept {
  const auto now = std::chrono::steady_clock::now();
  const double passed = std::chrono::duration<double>(now - refilled_).count();
  refilled_ = now;
  const double most = std::max(kBurst, kBurstS * bytes_per_s_);
  for (double& bytes : allowed_) bytes = std::min(most, bytes + passed * bytes_per_s_);
}

bool SlowLink::move(Connection& connection, std::size_t from) noexcept {
  Flow& flow = connection.flows[from];
  const int source = connection.ends[from].get();
  const int sink = connection.ends[1 - from].get();
  for (;;) {
    if (flow.empty()) {
      const auto room = std::min(allowed_[from], static_cast<double>(flow.bytes.size()));
      if (room < 1.0) return true;
      const ssize_t got = ::read(source, flow.bytes.data(), static_cast<std::size_t>(room));
      if (got == 0) return false;
      if (got < 0) return errno == EAGAIN || errno == EINTR;
      flow.begin = 0;
      flow.end = static_cast<std::size_t>(got);
      allowed_[from] -= static_cast<double>(got);
    }
    const ssize_t sent =
        ::send(sink, flow.bytes.data() + flow.begin, flow.end - flow.begin, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    flow.begin += static_cast<std::size_t>(sent);
  }
}

}  // namespace tern::e2e
