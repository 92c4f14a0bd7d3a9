#include "net/tls/tls_context.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/fd.h"
#include "net/tls/tls_session.h"

namespace tern::net {
namespace {

// Both hash with SHA-256, which a cluster key is bound to.
constexpr const char* kSuites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kGroups = "X25519:P-256";
// Of a peer that has not proved itself yet.
constexpr long kMaxChainBytes = 32 << 10;
constexpr std::size_t kMaxKeyFileBytes = 4096;

// Private keys that everybody on this machine can read are no secret.
Status check_secret_file(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    return fail_errno(Errc::io_error, path + ": cannot be read", errno);
  }
  if ((facts.st_mode & S_IRWXO) != 0) {
    return fail(Errc::permission_denied,
                path +
                    ": is open to every user of this machine; chmod 600 it, and give it to the "
                    "daemon's user");
  }
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno(Errc::io_error, path + ": cannot be read", errno);
  return {};
}

Result<std::string> read_secret(const std::string& path) {
  if (auto checked = check_secret_file(path); !checked) return tl::unexpected(checked.error());
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(kMaxKeyFileBytes, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) return fail_errno(Errc::io_error, path + ": cannot be read", errno);
  text.resize(static_cast<std::size_t>(count));
  return text;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool read_key(std::string_view line, ClusterKey& key) {
  if (line.size() != 2 * key.secret.size()) return false;
  for (std::size_t i = 0; i < key.secret.size(); ++i) {
    const int high = hex_value(line[2 * i]), low = hex_value(line[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    key.secret[i] = static_cast<unsigned char>(high * 16 + low);
  }
  // A digest of a digest: the name is sent in the clear.
  constexpr std::string_view kLabel = "tern cluster key name";
  std::array<unsigned char, 32 + kLabel.size()> input;
  std::copy(key.secret.begin(), key.secret.end(), input.begin());
  std::copy(kLabel.begin(), kLabel.end(), input.begin() + 32);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (EVP_Digest(input.data(), input.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    return false;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::size_t kNameBytes = 8;
  key.name = "tern-";
  for (std::size_t i = 0; i < kNameBytes; ++i) {
    key.name += kDigits[digest[i] >> 4];
    key.name += kDigits[digest[i] & 15];
  }
  return true;
}

tl::unexpected<Error> bad_file(const std::string& path, const char* what) {
  return fail(Errc::invalid_argument, path + ": " + what + ": " + pki::openssl_trouble());
}

}  // namespace

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

std::unique_ptr<TlsContext> TlsContext::make() {
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  if (context == nullptr) return nullptr;
  std::unique_ptr<TlsContext> made(new TlsContext(context));
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);  // TlsSession::read_record() says why
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                     TlsSession::note_verdict);
  SSL_CTX_set_max_cert_list(context, kMaxChainBytes);
  SSL_CTX_set_psk_use_session_callback(context, TlsSession::offer_key);
  SSL_CTX_set_psk_find_session_callback(context, TlsSession::find_key);
  const bool configured = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                          SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                          SSL_CTX_set_num_tickets(context, 0) == 1 &&
                          SSL_CTX_set_ciphersuites(context, kSuites) == 1 &&
                          SSL_CTX_set1_groups_list(context, kGroups) == 1;
  return configured ? std::move(made) : nullptr;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::with_certificates(
    const CertificateFiles& files) {
  std::unique_ptr<TlsContext> made = make();
  if (!made) return fail(Errc::internal, "TLS cannot be set up: " + pki::openssl_trouble());
  auto authorities = pki::read_certificates(files.authorities);
  if (!authorities) return tl::unexpected(authorities.error());
  auto own = pki::read_certificates(files.certificate);
  if (!own) return tl::unexpected(own.error());
  if (auto secret = check_secret_file(files.key); !secret) return tl::unexpected(secret.error());
  ERR_clear_error();
  SSL_CTX* const context = made->context_;
  if (SSL_CTX_load_verify_file(context, files.authorities.c_str()) != 1) {
    return bad_file(files.authorities, "is no file of authorities");
  }
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
    return bad_file(files.certificate, "is no certificate");
  }
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return bad_file(files.key, ("is not the key of " + files.certificate).c_str());
  }
  made->own_.push_back(std::move(own->front()));
  made->authorities_ = std::move(*authorities);
  return std::shared_ptr<const TlsContext>(std::move(made));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::with_cluster_keys(const std::string& file) {
  std::unique_ptr<TlsContext> made = make();
  if (!made) return fail(Errc::internal, "TLS cannot be set up: " + pki::openssl_trouble());
  const auto text = read_secret(file);
  if (!text) return tl::unexpected(text.error());
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty() || line.front() == '#') continue;
    ClusterKey key;
    if (!read_key(line, key)) {
      return fail(Errc::invalid_argument,
                  file +
                      ": a cluster key is a line of 64 hexadecimal digits; `ternctl pki new-key` "
                      "makes one");
    }
    made->keys_.push_back(std::move(key));
  }
  if (made->keys_.empty()) {
    return fail(Errc::invalid_argument,
                file + ": has no cluster key; `ternctl pki new-key` makes one");
  }
  return std::shared_ptr<const TlsContext>(std::move(made));
}

}  // namespace tern::net
