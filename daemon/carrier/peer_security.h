#pragma once

// How this daemon and others know each other, as the settings say, and until when.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "daemon/config/config.h"
#include "net/tls/tls_context.h"

namespace tern::daemon {

class PeerSecurity {
 public:
  static Result<PeerSecurity> create(const Config& config);

  // What connections are made with; null: plaintext.
  const net::TlsSource* source() const noexcept { return source_.get(); }
  // Reads the files again; new connections use what they say now. On an error all stays.
  Status reload(const Config& config);
  // Says in the log what an operator must know of: plaintext, and certificates that end soon.
  void announce() const;
  // The same for certificates once a day; `now_s` is Unix time.
  void watch(std::int64_t now_s);

  // "TLS by certificates": for the log and the supervisor.
  std::string text() const;
  // Adds what `status` shows.
  void report(nlohmann::json& status) const;

 private:
  explicit PeerSecurity(std::string mode) : mode_(std::move(mode)) {}
  void warn_of_expiry(std::int64_t now_s) const;

  std::string mode_;
  std::unique_ptr<net::TlsSource> source_;
  std::int64_t next_watch_s_ = 0;
};

}  // namespace tern::daemon
