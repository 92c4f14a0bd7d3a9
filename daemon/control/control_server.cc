#include "daemon/control/control_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/passed_descriptors.h"
#include "base/time_slice.h"
#include "daemon/control/request.h"
#include "daemon/control/socket_file.h"
#include "daemon/service/shared_places.h"

namespace tern::daemon {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::local::stream_protocol::socket;

// How long accepting rests when the process is out of descriptors.
constexpr std::chrono::milliseconds kAcceptPause{100};

constexpr int kAcceptsPerRound = 32;
constexpr std::uint64_t kSliceNs = 1'000'000;
constexpr std::size_t kReadBytes = 4096;

ucred peer_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    // Nobody is the one who may do nothing.
    return {0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  }
  return peer;
}

Credentials credentials_of(int fd) {
  const ucred peer = peer_of(fd);
  Credentials credentials{peer.pid, peer.uid, peer.gid, {}};
  // With too small a buffer the kernel answers ERANGE and the length that it needs.
  socklen_t size = 0;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, nullptr, &size) != 0 && errno == ERANGE) {
    credentials.groups.resize(size / sizeof(gid_t));
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, credentials.groups.data(), &size) != 0) {
      credentials.groups.clear();
    }
  }
  return credentials;
}

}  // namespace

// Handlers of the acceptor hold it weakly: one that was already queued when the server was
// destroyed finds nothing.
class ControlServer::Impl : public std::enable_shared_from_this<ControlServer::Impl> {
 public:
  // One connection: read a line, answer it, read the next. It lives as long as an operation of it
  // is pending, and touches the server only until close().
  class Session : public std::enable_shared_from_this<Session> {
   public:
    Session(Impl& server, Socket socket, uid_t account)
        : server_(&server),
          disposal_(server.disposal_),
          credentials_(credentials_of(socket.native_handle())),
          account_(account),
          is_privileged_(server.is_privileged(credentials_.uid)),
          socket_(std::move(socket)),
          timer_(socket_.get_executor()) {}

    ~Session() { dispose_of_socket(); }

    // Most have asked by the time that they are accepted.
    void start() {
      arm_timer();
      read_some();
    }

    uid_t account() const noexcept { return account_; }
    bool is_privileged() const noexcept { return is_privileged_; }

    void close() {
      if (server_ == nullptr) return;
      const auto self = shared_from_this();
      std::exchange(server_, nullptr)->forget(this);
      timer_.cancel();
      dispose_of_socket();
    }

   private:
    void read_line() {
      arm_timer();
      take_line();
    }

    // Reads by itself: Asio's read would have the kernel close what descriptors come along, here
    // and now.
    void take_line() {
      if (const auto end = input_.find('\n'); end != std::string::npos) return answer(end + 1);
      if (input_.size() >= kMaxControlRequestBytes) {
        return write(
            {error_line(Errc::protocol_error, "the line is longer than 65536 bytes"), true});
      }
      socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
        if (self->server_ == nullptr) return;
        if (error) return self->close();
        self->read_some();
      });
    }

    void read_some() {
      std::array<char, kReadBytes> text;
      const std::size_t room = std::min(text.size(), kMaxControlRequestBytes - input_.size());
      Received received = receive_with_descriptors(
          socket_.native_handle(), std::as_writable_bytes(std::span(text).first(room)));
      if (!received.fds.empty()) {
        disposal_.take_whole(account(), std::move(received.fds));
        return close();
      }
      if (received.error == EAGAIN) return take_line();
      if (received.error != 0 || received.bytes == 0) return close();
      input_.append(text.data(), static_cast<std::size_t>(received.bytes));
      take_line();
    }

    void dispose_of_socket() {
      if (!socket_.is_open()) return;
      error_code ignored;
      disposal_.take_whole(account(), Fd(socket_.release(ignored)));
    }

    void answer(std::size_t line_bytes) {
      const std::string_view line = std::string_view(input_).substr(0, line_bytes - 1);
      ControlAnswer reply =
          answer_request(line, credentials_, server_->handler_, server_->options_.max_answer_bytes);
      input_.erase(0, line_bytes);
      write(std::move(reply));
    }

    void write(ControlAnswer reply) {
      reply_ = std::move(reply);
      arm_timer();
      asio::async_write(socket_, asio::buffer(reply_.line),
                        [self = shared_from_this()](const error_code& error, std::size_t) {
                          if (self->server_ == nullptr) return;
                          if (error || self->reply_.close) return self->close();
                          // The room of a large answer is given back while the client thinks.
                          self->reply_ = {};
                          self->read_line();
                        });
    }

    void arm_timer() {
      timer_.expires_after(server_->options_.idle_timeout);
      timer_.async_wait([self = shared_from_this()](const error_code& error) {
        // A wait that ended just before it was re-armed still comes without an error.
        const bool due = self->timer_.expiry() <= asio::steady_timer::clock_type::now();
        if (!error && due) self->close();
      });
    }

    Impl* server_;  // nullptr: closed
    Disposal& disposal_;
    Credentials credentials_;
    uid_t account_;  // for whom it is counted
    bool is_privileged_;
    Socket socket_;
    asio::steady_timer timer_;
    std::string input_;
    ControlAnswer reply_;
  };

  Impl(asio::io_context& io, const ControlOptions& options, ControlVerbs& handler,
       Disposal& disposal)
      : options_(options), handler_(handler), disposal_(disposal), acceptor_(io), pause_(io) {}

  ~Impl() {
    while (!sessions_.empty()) sessions_.back()->close();
  }

  Status start(SocketFile file) {
    file_ = std::move(file);
    error_code error;
    Fd fd = file_.take_fd();
    acceptor_.assign(asio::local::stream_protocol(), fd.get(), error);
    if (error) return fail(Errc::io_error, options_.path + ": " + error.message());
    (void)fd.release();  // the acceptor's now
    acceptor_.non_blocking(true, error);
    if (error) return fail(Errc::io_error, options_.path + ": " + error.message());
    may_be_passed_ = !refuse_passed_descriptors(acceptor_.native_handle());
    accept();
    return {};
  }

  std::size_t client_count() const noexcept { return sessions_.size(); }

 private:
  // Those who must get in to end what others do.
  bool is_privileged(uid_t uid) const noexcept { return uid == 0 || uid == own_user_; }

  void accept() {
    acceptor_.async_wait(Socket::wait_read, [weak = weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      if (self == nullptr || error == asio::error::operation_aborted) return;
      if (error) return self->pause();
      self->accept_some();
    });
  }

  // By itself: for one who is turned away at once, Asio's accept takes several times as long, and
  // others wait behind him.
  void accept_some() {
    const TimeSlice slice(clock_, kSliceNs);
    for (int i = 0; i < kAcceptsPerRound && !slice.is_over(); ++i) {
      Fd fd(::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) {
        welcome(std::move(fd));
      } else if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) {
        break;
      } else {
        return pause();
      }
    }
    accept();
  }

  void pause() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([weak = weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      if (self != nullptr && !error) self->accept();
    });
  }

  void welcome(Fd fd) {
    const uid_t user = peer_of(fd.get()).uid;
    const uid_t account = options_.account_of ? options_.account_of(user) : user;
    std::size_t of_user = 0, of_others = 0;
    for (const auto& other : sessions_) {
      of_user += other->account() == account ? 1 : 0;
      of_others += other->is_privileged() ? 0 : 1;
    }
    if (of_user >= options_.max_clients_per_user) {
      return refuse(std::move(fd), account,
                    "too many control clients: user " + std::to_string(user) + " has " +
                        std::to_string(of_user) + ", as many as one may; try again later");
    }
    if (!is_privileged(user) && !leaves_room(of_user, of_others, options_.max_clients)) {
      return refuse(std::move(fd), account, "too many control clients; try again later");
    }
    error_code error;
    Socket socket(acceptor_.get_executor());
    socket.assign(asio::local::stream_protocol(), fd.get(), error);
    if (error) return disposal_.take_whole(account, std::move(fd));
    (void)fd.release();  // the socket's now
    const auto session = std::make_shared<Session>(*this, std::move(socket), account);
    sessions_.push_back(session);
    session->start();
  }

  // Tells why and closes: a socket that is new has room for the line.
  void refuse(Fd fd, uid_t account, std::string_view why) {
    const std::string line = error_line(Errc::quota_exceeded, why);
    [[maybe_unused]] const auto sent =
        ::send(fd.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    // Else it is closed here, which keeps nobody waiting.
    if (may_be_passed_) disposal_.take_whole(account, std::move(fd));
  }

  void forget(const Session* session) {
    std::erase_if(sessions_, [&](const auto& held) { return held.get() == session; });
  }

  ControlOptions options_;
  ControlVerbs& handler_;
  Disposal& disposal_;
  const SteadyClock clock_;
  const uid_t own_user_ = ::geteuid();
  bool may_be_passed_ = true;  // descriptors, whose closing may take long
  SocketFile file_;
  asio::local::stream_protocol::acceptor acceptor_;
  asio::steady_timer pause_;
  std::vector<std::shared_ptr<Session>> sessions_;
};

ControlServer::ControlServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlServer::~ControlServer() = default;

Result<std::unique_ptr<ControlServer>> ControlServer::create(asio::io_context& io,
                                                             const ControlOptions& options,
                                                             ControlVerbs& handler,
                                                             Disposal& disposal) {
  auto file = SocketFile::listen(options.path, SOCK_STREAM, options.mode);
  if (!file) return tl::unexpected(file.error());
  auto impl = std::make_shared<Impl>(io, options, handler, disposal);
  if (auto status = impl->start(*std::move(file)); !status) return tl::unexpected(status.error());
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

std::size_t ControlServer::client_count() const noexcept { return impl_->client_count(); }

}  // namespace tern::daemon
