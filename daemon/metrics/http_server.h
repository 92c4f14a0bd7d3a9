#pragma once

// One page over HTTP, in plaintext and to everyone who can connect, on a thread of its own.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace tern::daemon {

// Each connection is for one request. There is always a place for one more: where all are taken,
// the oldest one goes that has not asked yet, else the oldest of all. So who connects and says
// nothing, or reads nothing, keeps nobody out, however often.
class HttpServer {
 public:
  struct Settings {
    std::string host;
    std::uint16_t port = 0;                    // 0: the kernel chooses
    std::string path = "/metrics";             // of the page; there is no other
    std::size_t places = 32;                   // connections
    std::uint64_t request_ns = 2'000'000'000;  // from accepted to a whole request
    std::uint64_t answer_ns = 10'000'000'000;  // and from there to the last byte of the answer
  };
  // Makes the page; may wait a little. All who ask meanwhile get the next one together.
  // Thread: the server's.
  using Page = std::function<std::string()>;

  static constexpr std::size_t kMaxRequestBytes = 8 << 10;

  // The error says which address cannot be had.
  static Result<std::unique_ptr<HttpServer>> create(const Settings& settings, Page page);
  // Waits for a page that is being made.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const noexcept;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace tern::daemon
