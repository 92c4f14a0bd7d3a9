#include "daemon/metrics/http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <list>
#include <optional>
#include <thread>
#include <utility>

namespace tern::daemon {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// Where descriptors have run out, connections wait in the kernel for so long.
constexpr std::chrono::milliseconds kAcceptRetry{100};

// The answer to a request for anything but the page.
http::response<http::string_body> refusal(http::status status) {
  http::response<http::string_body> answer(status, 11);
  answer.set(http::field::content_type, "text/plain; charset=utf-8");
  answer.body() = std::string(http::obsolete_reason(status)) + "\n";
  return answer;
}

}  // namespace

// Everything happens on one thread, so that nothing of it is locked.
class HttpServer::Loop {
 public:
  Loop(const Settings& settings, Page page)
      : settings_(settings), page_(std::move(page)), acceptor_(io_), retry_(io_) {}
  ~Loop() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    error_code error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(settings_.host, std::to_string(settings_.port),
                                        tcp::resolver::passive, error);
    if (error) return fail(Errc::io_error, error.message());
    const tcp::endpoint at = found.begin()->endpoint();
    acceptor_.open(at.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(at, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return fail(Errc::io_error, "cannot listen: " + error.message());
    port_ = acceptor_.local_endpoint(error).port();
    accept();
    try {
      thread_ = std::thread([this] { io_.run(); });
    } catch (const std::system_error&) {
      return fail(Errc::io_error, "no thread is left");
    }
    return {};
  }
  std::uint16_t port() const noexcept { return port_; }

 private:
  // One request and its answer.
  struct Session {
    explicit Session(tcp::socket socket) : stream(std::move(socket)) {
      request.header_limit(kMaxRequestBytes);
    }
    void close() {
      error_code ignored;
      stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
      stream.close();
    }

    beast::tcp_stream stream;
    beast::flat_buffer buffer{kMaxRequestBytes};
    http::request_parser<http::empty_body> request;
    bool has_asked = false;
    http::response<http::string_body> answer;
  };
  using Sessions = std::list<std::shared_ptr<Session>>;

  void accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!error) {
        serve(std::move(socket));
        return accept();
      }
      retry_.expires_after(kAcceptRetry);
      retry_.async_wait([this](const error_code&) { accept(); });
    });
  }

  void serve(tcp::socket socket) {
    if (sessions_.size() >= settings_.places) make_room();
    const auto session = sessions_.emplace_back(std::make_shared<Session>(std::move(socket)));
    session->stream.expires_after(std::chrono::nanoseconds(settings_.request_ns));
    http::async_read_header(session->stream, session->buffer, session->request,
                            [this, session](const error_code& error, std::size_t) {
                              if (error) return end(*session);
                              take_request(session);
                            });
  }

  void make_room() {
    const auto silent = std::find_if(sessions_.begin(), sessions_.end(),
                                     [](const auto& session) { return !session->has_asked; });
    end(silent != sessions_.end() ? **silent : *sessions_.front());
  }

  void end(Session& session) {
    session.close();
    sessions_.remove_if([&session](const auto& one) { return one.get() == &session; });
  }

  void take_request(const std::shared_ptr<Session>& session) {
    session->has_asked = true;
    session->stream.expires_after(std::chrono::nanoseconds(settings_.answer_ns));
    const auto& request = session->request.get();
    const std::string path(request.target().substr(0, request.target().find('?')));
    if (path != settings_.path) {
      session->answer = refusal(http::status::not_found);
    } else if (request.method() != http::verb::get && request.method() != http::verb::head) {
      session->answer = refusal(http::status::method_not_allowed);
    } else {
      // One page for all who ask until it is made: it may take as long for one as for many.
      if (waiting_.empty()) asio::post(io_, [this] { answer_all(); });
      waiting_.push_back(session);
      return;
    }
    write(session);
  }

  void answer_all() {
    const std::string page = page_();
    for (const auto& session : std::exchange(waiting_, {})) {
      session->answer = {http::status::ok, 11};
      session->answer.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
      session->answer.body() = page;
      write(session);
    }
  }

  void write(const std::shared_ptr<Session>& session) {
    session->answer.keep_alive(false);
    session->answer.prepare_payload();
    if (session->request.get().method() == http::verb::head) session->answer.body().clear();
    http::async_write(session->stream, session->answer,
                      [this, session](const error_code&, std::size_t) { end(*session); });
  }

  const Settings settings_;
  const Page page_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::uint16_t port_ = 0;
  Sessions sessions_;  // oldest first
  Sessions waiting_;   // for a page
  std::thread thread_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::create(const Settings& settings, Page page) {
  auto loop = std::make_unique<Loop>(settings, std::move(page));
  if (Status started = loop->start(); !started) return tl::unexpected(started.error());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop)));
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const noexcept { return loop_->port(); }

}  // namespace tern::daemon
