#include "daemon/metrics/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/metrics/http_request.h"

namespace tern::daemon {
namespace {

// Where descriptors have run out, connections wait in the kernel for so long.
constexpr std::uint64_t kAcceptRetryNs = 100'000'000;

Result<Fd> listen_on(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const std::string number = std::to_string(port);
  const int rc =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), number.c_str(), &hints, &first);
  if (rc != 0) return fail(Errc::io_error, ::gai_strerror(rc));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(first, &::freeaddrinfo);
  Fd listener(::socket(first->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (listener) ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!listener || ::bind(listener.get(), first->ai_addr, first->ai_addrlen) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return fail_errno(Errc::io_error, "cannot listen", errno);
  }
  return listener;
}

std::uint16_t port_of(const Fd& listener) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  void* const generic = &address;
  if (::getsockname(listener.get(), static_cast<sockaddr*>(generic), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? static_cast<sockaddr_in6*>(generic)->sin6_port
                                             : static_cast<sockaddr_in*>(generic)->sin_port);
}

struct Connection {
  Fd socket;
  std::uint64_t deadline_ns = 0;
  std::string received;
  HttpAnswer asked = HttpAnswer::none_yet;
  std::string answer;  // what is left of it
  bool is_over = false;
};

}  // namespace

class HttpServer::Loop {
 public:
  Loop(const Settings& settings, Page page, Fd listener)
      : settings_(settings),
        page_(std::move(page)),
        listener_(std::move(listener)),
        end_(::eventfd(0, EFD_CLOEXEC)),
        port_(port_of(listener_)) {}
  ~Loop() {
    const std::uint64_t one = 1;
    // There is room for one.
    [[maybe_unused]] const ssize_t written = ::write(end_.get(), &one, sizeof one);
    if (thread_.joinable()) thread_.join();
  }
  bool start() {
    if (!end_) return false;
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }
  std::uint16_t port() const noexcept { return port_; }

 private:
  void run() {
    while (!wait()) {
      if (events_[1].revents != 0) accept_some();
      for (Connection& each : connections_) {
        if (each.asked == HttpAnswer::none_yet && !each.is_over) read(each);
      }
      answer_those_who_asked();
      for (Connection& each : connections_) {
        if (!each.answer.empty()) write(each);
        each.is_over = each.is_over || clock_.now_ns() >= each.deadline_ns;
      }
      std::erase_if(connections_, [](const Connection& each) { return each.is_over; });
    }
  }

  // True: the server ends.
  bool wait() {
    const std::uint64_t now = clock_.now_ns();
    std::uint64_t until_ns = ~std::uint64_t{0};
    const bool accepts = now >= accept_after_ns_;
    if (!accepts) until_ns = accept_after_ns_;
    events_.clear();
    events_.push_back({end_.get(), POLLIN, 0});
    events_.push_back({accepts ? listener_.get() : -1, POLLIN, 0});
    for (const Connection& each : connections_) {
      const bool reads = each.asked == HttpAnswer::none_yet;
      events_.push_back({each.socket.get(), static_cast<short>(reads ? POLLIN : POLLOUT), 0});
      until_ns = std::min(until_ns, each.deadline_ns);
    }
    const std::uint64_t left_ms = until_ns <= now ? 0 : (until_ns - now) / 1'000'000 + 1;
    const bool is_endless = until_ns == ~std::uint64_t{0};
    ::poll(events_.data(), events_.size(), is_endless ? -1 : static_cast<int>(left_ms));
    return events_.front().revents != 0;
  }

  void accept_some() {
    // As many as there are places in a round: then those that are there have their turn.
    for (std::size_t i = 0; i < settings_.places; ++i) {
      Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        const bool is_empty = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
        if (!is_empty) accept_after_ns_ = clock_.now_ns() + kAcceptRetryNs;
        return;
      }
      if (connections_.size() >= settings_.places) make_room();
      Connection& added = connections_.emplace_back();
      added.socket = std::move(socket);
      added.deadline_ns = clock_.now_ns() + settings_.request_ns;
      read(added);  // who asks at once is none of those that have to go
    }
  }

  void make_room() {
    const auto silent =
        std::find_if(connections_.begin(), connections_.end(),
                     [](const Connection& each) { return each.asked == HttpAnswer::none_yet; });
    connections_.erase(silent != connections_.end() ? silent : connections_.begin());
  }

  void read(Connection& from) {
    std::array<char, kMaxRequestBytes> piece;
    const std::size_t room = kMaxRequestBytes - from.received.size();
    const ssize_t count = ::recv(from.socket.get(), piece.data(), room, 0);
    if (count < 0) {
      from.is_over = errno != EAGAIN && errno != EINTR;
      return;
    }
    from.received.append(piece.data(), static_cast<std::size_t>(count));
    from.asked = http_answer_to(from.received, settings_.path);
    if (from.asked != HttpAnswer::none_yet) {
      from.deadline_ns = clock_.now_ns() + settings_.answer_ns;
    } else {
      from.is_over = count == 0 || from.received.size() == kMaxRequestBytes;
    }
  }

  // One page for all of them: to make it may take as long for one as for many.
  void answer_those_who_asked() {
    const auto is_asked = [](const Connection& each) {
      return each.asked != HttpAnswer::none_yet && !each.received.empty();
    };
    const bool is_page_wanted =
        std::any_of(connections_.begin(), connections_.end(), [&](const Connection& each) {
          const bool is_page =
              each.asked == HttpAnswer::page || each.asked == HttpAnswer::head_alone;
          return is_page && is_asked(each);
        });
    const std::string page = is_page_wanted ? page_() : "";
    for (Connection& each : connections_) {
      if (!is_asked(each)) continue;
      each.answer = http_answer(each.asked, page);
      each.received.clear();
    }
  }

  static void write(Connection& to) {
    const ssize_t count = ::send(to.socket.get(), to.answer.data(), to.answer.size(), MSG_NOSIGNAL);
    if (count < 0) {
      to.is_over = errno != EAGAIN && errno != EINTR;
      return;
    }
    to.answer.erase(0, static_cast<std::size_t>(count));
    to.is_over = to.answer.empty();
  }

  const Settings settings_;
  const Page page_;
  const Fd listener_;
  const Fd end_;
  const std::uint16_t port_;
  SteadyClock clock_;
  std::deque<Connection> connections_;  // oldest first
  std::vector<pollfd> events_;          // the end, the listener, the connections
  std::uint64_t accept_after_ns_ = 0;
  std::thread thread_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::create(const Settings& settings, Page page) {
  auto listener = listen_on(settings.host, settings.port);
  if (!listener) return tl::unexpected(listener.error());
  auto loop = std::make_unique<Loop>(settings, std::move(page), std::move(*listener));
  if (!loop->start()) return fail(Errc::io_error, "no descriptor or thread is left");
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop)));
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const noexcept { return loop_->port(); }

}  // namespace tern::daemon
