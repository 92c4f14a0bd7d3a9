#pragma once

// A server whose verbs are the test's, and clients of it.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "daemon/control/control_server.h"

namespace tern::daemon {

class FakeHandler final : public ControlVerbs {
 public:
  Result<nlohmann::json> handle(std::string_view verb, const nlohmann::json& args,
                                const Credentials& credentials) override {
    ++calls;
    last = credentials;
    steps.emplace_back(verb);
    askers.push_back(credentials.uid);
    if (verb == "echo") return args;
    if (verb == "large")
      return nlohmann::json(std::string(args.at("bytes").get<std::size_t>(), 'x'));
    if (verb == "bytes") return nlohmann::json("\xff\xfe");
    if (verb == "throw") throw std::runtime_error("a defect");
    if (verb == "refused") return fail(Errc::permission_denied, "only root may");
    return fail(Errc::unsupported, "unknown verb");
  }

  // As many as `row_count`, by threes, and every other time none.
  RowSource rows(std::string_view verb, const Credentials&) override {
    if (verb != "rows") return nullptr;
    return [this, next = 0, pauses = false](nlohmann::json& rows) mutable {
      pauses = !pauses;
      for (int i = 0; i < 3 && !pauses && next < row_count; ++i) {
        rows.push_back({{"number", next++}, {"text", std::string(row_bytes, 'x')}});
        if (next == failing_row) throw std::runtime_error("a defect");
      }
      ++pieces;
      return next < row_count;
    };
  }

  void at(const char* step) override { steps.emplace_back(step); }

  int row_count = 0, failing_row = -1, pieces = 0;
  std::size_t row_bytes = 1;

  int calls = 0;
  Credentials last;
  std::vector<std::string> steps;
  std::vector<uid_t> askers;
};

// A server whose io_context the test steps by hand, and non-blocking clients of it: one thread.
class ControlServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/tern_control_XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    options_.path = directory_ + "/control.sock";
  }

  void TearDown() override {
    server_.reset();
    ::rmdir(directory_.c_str());
  }

  void start() {
    auto server = ControlServer::create(io_, options_, handler_, disposal_);
    ASSERT_TRUE(server) << server.error().text;
    server_ = *std::move(server);
  }

  // As another user, which root alone can be.
  Fd connect_as(uid_t user) {
    EXPECT_EQ(::seteuid(user), 0);
    Fd fd = connect();
    EXPECT_EQ(::seteuid(0), 0);
    return fd;
  }

  Fd connect() {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, options_.path.data(), options_.path.size());
    const void* const bytes = &address;
    if (::connect(fd.get(), static_cast<const sockaddr*>(bytes), sizeof(address)) != 0) fd.reset();
    return fd;
  }

  // False once the server has closed the connection.
  bool send(const Fd& fd, std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
      if (count < 0 && errno != EAGAIN) return false;
      io_.poll();
    }
    return true;
  }

  // Runs the server until it has closed the connection or sent a line; "" for closed.
  std::string receive_line(const Fd& fd) {
    std::string line;
    std::array<char, 65'536> buffer;
    while (true) {
      // Peeks first, so that what follows the line feed stays for the next call.
      const ssize_t seen = ::recv(fd.get(), buffer.data(), buffer.size(), MSG_PEEK);
      if (seen == 0 || (seen < 0 && errno != EAGAIN)) return "";
      if (seen < 0) {
        io_.run_one_for(std::chrono::milliseconds(1));
        continue;
      }
      const std::string_view chunk(buffer.data(), static_cast<std::size_t>(seen));
      const std::size_t end = chunk.find('\n');
      const std::size_t take = end == std::string_view::npos ? chunk.size() : end + 1;
      line += chunk.substr(0, take);
      if (::recv(fd.get(), buffer.data(), take, 0) != static_cast<ssize_t>(take)) return "";
      if (end == std::string_view::npos) continue;
      line.pop_back();
      return line;
    }
  }

  // Not if it has been sent away.
  bool is_served(const Fd& fd) {
    const nlohmann::json answer = ask(fd, R"({"v":1,"id":1,"verb":"echo"})");
    return answer.is_object() && answer["ok"] == true;
  }

  nlohmann::json ask(const Fd& fd, std::string_view line) {
    send(fd, std::string(line) + "\n");
    return nlohmann::json::parse(receive_line(fd), nullptr, false);
  }

  Disposal disposal_;
  boost::asio::io_context io_;
  FakeHandler handler_;
  ControlOptions options_;
  std::string directory_;
  std::unique_ptr<ControlServer> server_;
};

}  // namespace tern::daemon
