#pragma once

// What a daemon proves itself with to others, and what it demands of them: certificates of a
// cluster's authority, or a key that the whole cluster shares. TLS 1.3 and nothing older, forward
// secrecy always, no session tickets, no early data, no renegotiation, no compression.

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "pki/certificate.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tern::net {

// A shared secret, and the name under which it is offered, which tells nothing about it.
struct ClusterKey {
  std::array<unsigned char, 32> secret;
  std::string name;
};

// PEM. The certificate's file may have those between it and the authority behind it.
struct CertificateFiles {
  std::string authorities;
  std::string certificate;
  std::string key;
};

// Immutable, and used by all threads at once.
class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> with_certificates(const CertificateFiles& files);
  // The file has one or several keys of 64 hexadecimal digits, a line each: the first is offered,
  // any of them is accepted.
  static Result<std::shared_ptr<const TlsContext>> with_cluster_keys(const std::string& file);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* native() const noexcept { return context_; }
  bool uses_keys() const noexcept { return !keys_.empty(); }
  std::span<const ClusterKey> keys() const noexcept { return keys_; }
  // Of this node; the authorities that it trusts. Empty with cluster keys.
  const std::vector<pki::CertificateFacts>& own() const noexcept { return own_; }
  const std::vector<pki::CertificateFacts>& authorities() const noexcept { return authorities_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  static std::unique_ptr<TlsContext> make();

  ssl_ctx_st* context_;
  std::vector<ClusterKey> keys_;
  std::vector<pki::CertificateFacts> own_;
  std::vector<pki::CertificateFacts> authorities_;
};

// Where connections that are opened from now on take their context from. Thread: any; its lock is
// taken when a connection is opened, and never for what travels on one.
class TlsSource {
 public:
  explicit TlsSource(std::shared_ptr<const TlsContext> context) : context_(std::move(context)) {}
  std::shared_ptr<const TlsContext> current() const {
    const std::lock_guard lock(mutex_);
    return context_;
  }
  void replace(std::shared_ptr<const TlsContext> context) {
    const std::lock_guard lock(mutex_);
    context_ = std::move(context);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const TlsContext> context_;
};

}  // namespace tern::net
