#include "ctl/control_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/printable.h"
#include "wire/versions.h"

namespace tern::ctl {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// Above the largest answer of any daemon (16 MiB): a bound on what a stranger at the socket can
// make us hold.
constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;
constexpr std::uint64_t kRequestId = 1;

tl::unexpected<Error> no_daemon(const std::string& path, std::string_view why) {
  return fail(
      Errc::daemon_absent,
      fmt::format("no ternd answers at {}: {}.\n"
                  "Start it with `systemctl start ternd` or `ternd --config FILE`; if it runs "
                  "with another control_socket,\ngive that with --socket or in "
                  "$TERN_CONTROL_SOCKET.",
                  path, why));
}

tl::unexpected<Error> connect_error(const std::string& path, int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return no_daemon(path, "the socket does not exist");
    case ECONNREFUSED:
      return no_daemon(path, "nobody listens there");
    case EACCES:
    case EPERM:
      return fail(
          Errc::permission_denied,
          fmt::format("user {} may not connect to {}.\nUse sudo; control_socket_mode in ternd.toml "
                      "and the mode of the folder decide who may.",
                      ::geteuid(), path));
    default:
      return fail_errno(Errc::io_error, path, error_number);
  }
}

tl::unexpected<Error> too_late(const std::string& path, std::chrono::milliseconds timeout) {
  return fail(Errc::timeout,
              fmt::format("the daemon at {} did not answer within {} ms; it may be busy or "
                          "stuck. --timeout gives it longer.",
                          path, timeout.count()));
}

tl::unexpected<Error> not_the_protocol(const std::string& path, std::string_view why) {
  return fail(Errc::protocol_error,
              fmt::format("what answers at {} does not speak the control protocol: {}", path, why));
}

// One connection with one deadline for all that happens on it.
class Connection {
 public:
  Connection(std::string path, std::chrono::milliseconds timeout)
      : path_(std::move(path)), timeout_(timeout), deadline_(Clock::now() + timeout) {}

  Status open();
  Status send(std::string_view line);
  Result<std::string> receive_line();

 private:
  Status connect_in_turn(const sockaddr_un& address);
  Status wait_for(short events);
  std::chrono::milliseconds left() const;

  std::string path_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
  Fd fd_;
};

std::chrono::milliseconds Connection::left() const {
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()));
}

Status Connection::wait_for(short events) {
  pollfd entry{fd_.get(), events, 0};
  while (true) {
    const int count = ::poll(&entry, 1, static_cast<int>(left().count()));
    if (count > 0) return {};
    if (count == 0) return too_late(path_, timeout_);
    if (errno != EINTR) return fail_errno(Errc::io_error, path_, errno);
  }
}

Status Connection::open() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.empty() || path_.size() >= sizeof(address.sun_path)) {
    return fail(Errc::invalid_argument,
                fmt::format("\"{}\" is not the path of a socket, 1 to 107 bytes", path_));
  }
  std::memcpy(address.sun_path, path_.data(), path_.size());
  fd_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd_) return fail_errno(Errc::io_error, "socket", errno);
  if (auto status = connect_in_turn(address); !status) return status;
  if (::fcntl(fd_.get(), F_SETFL, O_NONBLOCK) != 0) {
    return fail_errno(Errc::io_error, "fcntl", errno);
  }
  return {};
}

// Where the daemon's backlog is full, the kernel lets those in who wait for a place, in their turn.
// Who asks again from time to time finds that others have taken every place meanwhile.
Status Connection::connect_in_turn(const sockaddr_un& address) {
  const void* const bytes = &address;
  while (true) {
    const auto wait = std::max(std::chrono::milliseconds(1), left());  // none would have no end
    const auto seconds = std::chrono::floor<std::chrono::seconds>(wait);
    const timeval patience{seconds.count(), std::chrono::microseconds(wait - seconds).count()};
    if (::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0) {
      return fail_errno(Errc::io_error, "setsockopt", errno);
    }
    if (::connect(fd_.get(), static_cast<const sockaddr*>(bytes), sizeof(address)) == 0) return {};
    if (errno == EAGAIN) return too_late(path_, timeout_);
    if (errno != EINTR) return connect_error(path_, errno);
  }
}

Status Connection::send(std::string_view line) {
  while (!line.empty()) {
    const ssize_t count = ::send(fd_.get(), line.data(), line.size(), MSG_NOSIGNAL);
    if (count > 0) {
      line.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return {};  // the daemon closed at once; what it said first is still to be read
    } else if (errno == EAGAIN) {
      if (auto status = wait_for(POLLOUT); !status) return status;
    } else if (errno != EINTR) {
      return fail_errno(Errc::io_error, path_, errno);
    }
  }
  return {};
}

Result<std::string> Connection::receive_line() {
  std::string text;
  std::array<char, 65'536> buffer;
  while (true) {
    const ssize_t count = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      const std::string_view chunk(buffer.data(), static_cast<std::size_t>(count));
      const std::size_t end = chunk.find('\n');
      text += chunk.substr(0, end);
      if (end != std::string_view::npos) return text;
      if (text.size() > kMaxAnswerBytes) {
        return fail(Errc::quota_exceeded,
                    path_ + ": the answer has more than 64 MiB, which is all that ternctl takes");
      }
    } else if (count == 0 || errno == ECONNRESET) {
      return not_the_protocol(path_, "it closed the connection without an answer");
    } else if (errno == EAGAIN) {
      if (auto status = wait_for(POLLIN); !status) return tl::unexpected(status.error());
    } else if (errno != EINTR) {
      return fail_errno(Errc::io_error, path_, errno);
    }
  }
}

Errc code_named(std::string_view name) {
  for (std::int32_t i = 1; i < kErrcCount; ++i) {
    if (errc_name(static_cast<Errc>(i)) == name) return static_cast<Errc>(i);
  }
  return Errc::internal;
}

tl::unexpected<Error> daemon_error(std::string_view verb, const json& answer) {
  const json error = answer.value("error", json::object());
  const bool readable = error.is_object() && error.contains("code") && error["code"].is_string() &&
                        error.contains("text") && error["text"].is_string();
  if (!readable) return fail(Errc::protocol_error, "the daemon's error cannot be read");
  const std::string text = error["text"];
  const Errc code = code_named(error["code"].get_ref<const std::string&>());
  if (code == Errc::version_mismatch || code == Errc::unsupported) {
    const auto version = answer.find("v");
    const bool newer = version != answer.end() && version->is_number_unsigned() &&
                       version->get<std::uint64_t>() > wire::kControlProtocol;
    return fail(
        Errc::version_mismatch,
        fmt::format("the daemon refuses `{}`: {}.\n{}", verb, printable(text),
                    newer ? "ternctl is too old for this ternd: upgrade ternctl."
                          : "ternd is too old for this ternctl: upgrade ternd and restart it."));
  }
  const char* const remedy = code == Errc::permission_denied
                                 ? "\nUse sudo, or have the daemon's configuration name you."
                                 : "";
  return fail(code, fmt::format("the daemon refuses `{}`: {} ({}){}", verb, printable(text),
                                errc_name(code), remedy));
}

Result<json> read_answer(const std::string& path, std::string_view verb, std::string_view line) {
  json answer = json::parse(line, nullptr, false);
  if (!answer.is_object()) return not_the_protocol(path, "the answer is not a JSON object");
  const auto ok = answer.find("ok");
  if (ok == answer.end() || !ok->is_boolean()) return not_the_protocol(path, "\"ok\" is missing");
  if (!ok->get<bool>()) return daemon_error(verb, answer);
  const auto result = answer.find("result");
  if (result == answer.end()) return not_the_protocol(path, "\"result\" is missing");
  return std::move(*result);
}

}  // namespace

Result<json> ask_daemon(const std::string& socket_path, std::string_view verb, const json& args,
                        std::chrono::milliseconds timeout) {
  Connection connection(socket_path, timeout);
  if (auto status = connection.open(); !status) return tl::unexpected(status.error());
  const json request{
      {"v", wire::kControlProtocol}, {"id", kRequestId}, {"verb", verb}, {"args", args}};
  // What is no UTF-8 becomes signs that no name has, and the daemon knows no such thing.
  const std::string line_out = request.dump(-1, ' ', false, json::error_handler_t::replace);
  if (auto status = connection.send(line_out + "\n"); !status) {
    return tl::unexpected(status.error());
  }
  const auto line = connection.receive_line();
  if (!line) return tl::unexpected(line.error());
  return read_answer(socket_path, verb, *line);
}

}  // namespace tern::ctl
