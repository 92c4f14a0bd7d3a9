#pragma once

// What clients and other daemons are refused: each has a counter, a line of the log, and where
// somebody waits for it an answer. The lines are limited.

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/conductor/client.h"
#include "daemon/conductor/outlets.h"
#include "daemon/service/log_limit.h"
#include "wire/frame.h"

namespace tern::daemon {

class Refusals {
 public:
  struct Request {
    const Client& client;
    std::uint64_t number = 0;
    std::string_view group = {};
  };

  explicit Refusals(const Outlets& outlets) : outlets_(outlets) {}

  // ---- Clients
  // A connection, or its hello.
  void client(const Client& client, std::uint64_t request, Errc code, const std::string& text);
  void join(const Request& join, Errc code, const std::string& text);
  void join_over_quota(const Client& client, std::uint64_t request, const std::string& text);
  void declaration(const Request& declaration, Errc code, const std::string& text);
  void quota(const Client& client, std::uint64_t request, const std::string& text);
  // Which a lane has counted and answered.
  void entry(const Client& client, Errc code, const std::string& text);
  // That the client is disconnected. Only a line of the log.
  void log_end(const Client& client, const std::string& why);

  // ---- Other daemons
  // Only a line of the log.
  void log_peer(const std::string& peer, const std::string& text);
  // A connection of somebody who has not said who it is.
  void stranger(const std::string& from, Errc reason, const char* text);
  void hello(const wire::HelloBody& hello, const std::string& text);
  void control_breach(const std::string& peer, const std::string& text);

 private:
  void log_request(const Request& request, const char* what, Errc code, const std::string& text);
  void log_user(const Client& client, const std::string& what);

  Outlets outlets_;
  LogLimit<std::uint32_t> user_log_;
  LogLimit<std::uint64_t> client_log_;
  LogLimit<std::string> peer_log_, stranger_log_;
};

}  // namespace tern::daemon
