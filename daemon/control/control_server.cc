#include "daemon/control/control_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/passed_descriptors.h"
#include "base/time_slice.h"
#include "daemon/control/by_turns.h"
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
// Of a handler, of which several have room in a poll of the loop: who comes waits for one of each.
constexpr std::uint64_t kSliceNs = 250'000;
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
  // is pending or it waits for its turn, and touches the server only until close().
  class Session : public std::enable_shared_from_this<Session> {
   public:
    Session(Impl& server, Socket socket, uid_t account)
        : server_(&server),
          disposal_(server.disposal_),
          may_be_passed_(server.may_be_passed_),
          credentials_(credentials_of(socket.native_handle())),
          account_(account),
          is_privileged_(server.is_privileged(credentials_.uid)),
          socket_(std::move(socket)),
          timer_(socket_.get_executor()) {}

    ~Session() { leave_socket(); }

    // Most have asked by the time that they are accepted.
    void start() {
      give_time();
      wait_for_timer();
      server_->line_up(shared_from_this());
    }

    uid_t account() const noexcept { return account_; }
    bool is_privileged() const noexcept { return is_privileged_; }

    // It is its turn: it sends some of the answer, or takes some bytes and answers one line.
    void act() {
      if (server_ == nullptr) return;
      if (!reply_.line.empty()) return send_some();
      if (reply_.rows) return send_rows();
      if (input_.find('\n') == std::string::npos && !read_some()) return;
      if (const auto end = input_.find('\n'); end != std::string::npos) return answer(end + 1);
      if (input_.size() < kMaxControlRequestBytes) return wait_for(Socket::wait_read);
      reply({error_line(Errc::protocol_error, "the line is longer than 65536 bytes"), true});
    }

    void close() {
      if (server_ == nullptr) return;
      const auto self = shared_from_this();
      std::exchange(server_, nullptr)->forget(this);
      timer_.cancel();
      leave_socket();
    }

   private:
    void wait_for(Socket::wait_type what) {
      socket_.async_wait(what, [self = shared_from_this()](const error_code& error) {
        if (self->server_ == nullptr) return;
        self->server_->handler_.at("control: ready");
        if (error) return self->close();
        self->server_->line_up(self);
      });
    }

    // Whether something has come. Reads by itself: Asio's read would have the kernel close what
    // descriptors come along, here and now.
    bool read_some() {
      std::array<char, kReadBytes> text;
      const std::size_t room = std::min(text.size(), kMaxControlRequestBytes - input_.size());
      const Received received = receive_without_descriptors(
          socket_.native_handle(), std::as_writable_bytes(std::span(text).first(room)));
      if (received.error == EAGAIN) {
        wait_for(Socket::wait_read);
      } else if (received.error != 0 || received.bytes == 0 || received.has_left_descriptors) {
        close();
      } else {
        input_.append(text.data(), static_cast<std::size_t>(received.bytes));
        return true;
      }
      return false;
    }

    // What is unread in there may have descriptors with it. Else closing keeps nobody waiting.
    void leave_socket() {
      if (!socket_.is_open()) return;
      error_code ignored;
      Fd fd(socket_.release(ignored));
      if (may_be_passed_) disposal_.take_socket(account(), std::move(fd));
    }

    void answer(std::size_t line_bytes) {
      const std::string_view line = std::string_view(input_).substr(0, line_bytes - 1);
      ControlAnswer made =
          answer_request(line, credentials_, server_->handler_, server_->options_.max_answer_bytes);
      input_.erase(0, line_bytes);
      reply(std::move(made));
    }

    void reply(ControlAnswer made) {
      reply_ = std::move(made);
      sent_bytes_ = 0;
      give_time();
      send_some();
    }

    void send_some() {
      server_->handler_.at("control: send");
      const std::string_view rest = std::string_view(reply_.line).substr(sent_bytes_);
      const ssize_t count =
          ::send(socket_.native_handle(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count < 0 && errno != EAGAIN && errno != EINTR) return close();
      sent_bytes_ += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      if (sent_bytes_ < reply_.line.size()) return wait_for(Socket::wait_write);
      if (reply_.rows) {
        reply_.line.clear();
        give_time();
        return server_->line_up(shared_from_this());
      }
      if (reply_.close) return close();
      // The room of a large answer is given back while the client thinks.
      reply_ = {};
      give_time();
      if (input_.empty()) return wait_for(Socket::wait_read);
      server_->line_up(shared_from_this());
    }

    // When all that was made has been taken.
    void send_rows() {
      server_->handler_.at("control: rows");
      go_on(reply_);
      sent_bytes_ = 0;
      if (reply_.line.empty() && reply_.rows) return server_->line_up(shared_from_this());
      send_some();
    }

    void give_time() {
      due_ = asio::steady_timer::clock_type::now() + server_->options_.idle_timeout;
    }

    // One wait, however often it is given time.
    void wait_for_timer() {
      timer_.expires_at(due_);
      timer_.async_wait([self = shared_from_this()](const error_code& error) {
        if (error || self->server_ == nullptr) return;
        self->server_->handler_.at("control: timer");
        const bool is_due = self->due_ <= asio::steady_timer::clock_type::now();
        return is_due ? self->close() : self->wait_for_timer();
      });
    }

    Impl* server_;  // nullptr: closed
    Disposal& disposal_;
    const bool may_be_passed_;
    Credentials credentials_;
    uid_t account_;  // for whom it is counted
    bool is_privileged_;
    Socket socket_;
    asio::steady_timer timer_;
    asio::steady_timer::time_point due_;
    std::string input_;
    ControlAnswer reply_;  // until it is sent
    std::size_t sent_bytes_ = 0;
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
      self->handler_.at("control: accept");
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

  // Of each account one session in turn, however many have something to do; who must get in comes
  // first, and the sub-users who are counted for him do not.
  void line_up(const std::shared_ptr<Session>& session) {
    ready_.add(session->account(), session, session->is_privileged());
    if (!std::exchange(serves_soon_, true)) serve_soon();
  }

  void serve_soon() {
    asio::post(acceptor_.get_executor(), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->serve();
    });
  }

  void serve() {
    const TimeSlice slice(clock_, kSliceNs);
    do {
      handler_.at("control: serve");
      ready_.take()->act();
    } while (!ready_.empty() && !slice.is_over());
    serves_soon_ = !ready_.empty();
    if (serves_soon_) serve_soon();
  }

  void welcome(Fd fd) {
    const uid_t user = peer_of(fd.get()).uid;
    const uid_t account = options_.account_of ? options_.account_of(user) : user;
    std::size_t of_user = 0, of_others = 0;
    const bool privileged = is_privileged(user);
    for (const auto& other : sessions_) {
      // Sub-users of root are counted for him, and keep him from nothing.
      const bool is_same = other->account() == account && other->is_privileged() == privileged;
      of_user += is_same ? 1 : 0;
      of_others += other->is_privileged() ? 0 : 1;
    }
    if (of_user >= options_.max_clients_per_user) {
      return refuse(std::move(fd), account,
                    "too many control clients: user " + std::to_string(user) + " has " +
                        std::to_string(of_user) + ", as many as one may; try again later");
    }
    if (!privileged && !leaves_room(of_user, of_others, options_.max_clients)) {
      return refuse(std::move(fd), account, "too many control clients; try again later");
    }
    // A byte out of band is one of the line: apart from it, it would be readable and never read.
    const int yes = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes);
    error_code error;
    Socket socket(acceptor_.get_executor());
    socket.assign(asio::local::stream_protocol(), fd.get(), error);
    if (error) return disposal_.take_socket(account, std::move(fd));
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
    if (may_be_passed_) disposal_.take_socket(account, std::move(fd));
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
  ByTurns<std::shared_ptr<Session>> ready_;  // those with something to do
  bool serves_soon_ = false;                 // exactly where any is ready
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
