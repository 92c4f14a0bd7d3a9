#include "net/tls/tls_session.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "net/tls/tls_trouble.h"
#include "pki/handles.h"
#include "wire/frame.h"

namespace tern::net {
namespace {

constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::size_t kRecordRoom = kRecordBytes + SSL3_RT_MAX_ENCRYPTED_OVERHEAD + 64;
// What a peer that has proved nothing may make us read.
constexpr std::uint64_t kMaxHandshakeBytes = 128 << 10;
// Far below the limit of AES-GCM, 2^24.5 full records for one key (RFC 8446, 5.5).
constexpr std::uint64_t kKeyUpdateBytes = std::uint64_t{64} << 30;
// One call of read() decrypts no more of the peer's records, however small it makes them.
constexpr int kRecordsPerRead = 64;
// Records without data, as key updates are, with less than a MiB of data between each two. A peer
// has no use for them; each makes us derive keys.
constexpr int kMaxEmptyRecords = 8;
constexpr std::size_t kForgivingBytes = 1 << 20;

TlsSession* session_of(BIO* bio) { return static_cast<TlsSession*>(BIO_get_data(bio)); }

long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

bool is_address(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

// A secret as the session that TLS 1.3 treats it as.
SSL_SESSION* session_with(SSL* ssl, const ClusterKey& key) {
  constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  const bool made =
      SSL_SESSION_set1_master_key(session, key.secret.data(), key.secret.size()) == 1 &&
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kAes128GcmSha256)) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (made) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

}  // namespace

// ---- Life

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, int socket, bool accepts)
    : context_(std::move(context)),
      socket_(socket),
      accepts_(accepts),
      ssl_(SSL_new(context_->native())),
      in_(new std::byte[kBufferBytes]),
      out_(new std::byte[kBufferBytes]) {
  BIO* const bio = BIO_new(socket_method());
  TERN_CHECK(ssl_ != nullptr && bio != nullptr);  // out of memory only
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  SSL_set_msg_callback(ssl_,
                       [](int sent, int, int type, const void*, std::size_t, SSL*, void* session) {
                         auto* const self = static_cast<TlsSession*>(session);
                         if (sent == 0 && type == SSL3_RT_HANDSHAKE && self->is_open_)
                           ++self->messages_;
                       });
  SSL_set_msg_callback_arg(ssl_, this);
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

std::unique_ptr<TlsSession> TlsSession::connecting(std::shared_ptr<const TlsContext> context,
                                                   int socket, const std::string& host) {
  std::unique_ptr<TlsSession> made(new TlsSession(std::move(context), socket, false));
  made->host_ = host;
  SSL_set_connect_state(made->ssl_);
  // The name under which the peer was dialled must be among the alternative names of its
  // certificate. The common name is for people: no authority vouches for it as a host's.
  // A zone, as in fe80::1%eth0, says by which interface this machine dials, and is no part of it.
  const std::string address = host.substr(0, host.find('%'));
  if (is_address(address)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(made->ssl_), address.c_str());
  } else {
    SSL_set_hostflags(made->ssl_,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    SSL_set1_host(made->ssl_, host.c_str());
    std::string name = host;
    SSL_ctrl(made->ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
  }
  return made;
}

std::unique_ptr<TlsSession> TlsSession::accepting(std::shared_ptr<const TlsContext> context,
                                                  int socket) {
  std::unique_ptr<TlsSession> made(new TlsSession(std::move(context), socket, true));
  SSL_set_accept_state(made->ssl_);
  // Without it a server that verifies peers accepts no cluster key.
  constexpr unsigned char kSessions[] = "tern";
  SSL_set_session_id_context(made->ssl_, kSessions, sizeof kSessions);
  return made;
}

TlsStep TlsSession::handshake() {
  if (has_failed_) return TlsStep::failed;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  const TlsStep step = result == 1 ? TlsStep::done : outcome(result);
  const TlsStep flushed = flush();
  if (step == TlsStep::failed || step == TlsStep::ended) return fail();
  if (flushed == TlsStep::wants_write) return TlsStep::wants_write;
  if (step != TlsStep::done) return step;
  // A connection without a certificate is good only by the key.
  if (context_->uses_keys() && SSL_session_reused(ssl_) != 1) return fail();
  is_open_ = true;
  note_peer();
  return TlsStep::done;
}

void TlsSession::note_peer() {
  if (context_->uses_keys()) {
    peer_text_ = "TLS 1.3, the cluster key";
    return;
  }
  const pki::X509Handle certificate(SSL_get1_peer_certificate(ssl_));
  TERN_CHECK(certificate != nullptr);  // else the hand-shake would have failed
  const pki::CertificateFacts facts = pki::facts_of(certificate.get());
  peer_text_ = "TLS 1.3, " + facts.subject + " until " + pki::date_text(facts.not_after_s);
}

void TlsSession::say_end() {
  if (!is_open_ || has_failed_) return;
  ERR_clear_error();
  SSL_shutdown(ssl_);
  flush();
}

// ---- Outcomes

TlsStep TlsSession::outcome(int result) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return TlsStep::wants_read;
    case SSL_ERROR_WANT_WRITE:
      return TlsStep::wants_write;
    case SSL_ERROR_ZERO_RETURN:
      return TlsStep::ended;
    default:
      return has_ended_ && is_open_ ? TlsStep::ended : TlsStep::failed;
  }
}

TlsStep TlsSession::fail() {
  has_failed_ = true;
  TlsTrouble trouble;
  trouble.accepts = accepts_;
  trouble.host = host_;
  trouble.peer_offers_key = peer_offers_key_;
  trouble.peer_is_plain = std::memcmp(first_bytes_.data(), &wire::kFrameMagic, 4) == 0;
  trouble.code = ERR_get_error();
  trouble.verdict = verdict_;
  trouble.peer = verdict_ == X509_V_OK ? nullptr : &refused_;
  ERR_clear_error();
  // What ends without a word may be a matter of the network.
  const bool has_cause = trouble.code != 0 && !has_ended_;
  const bool is_alert = ERR_GET_REASON(trouble.code) > SSL_AD_REASON_OFFSET;
  reason_ = (!is_open_ && has_cause) || is_alert || trouble.peer_is_plain ? Errc::permission_denied
                                                                          : Errc::io_error;
  if (empty_records_ > kMaxEmptyRecords) {
    trouble_ = "the peer changes its TLS keys without end";
  } else {
    trouble_ = handshake_bytes_ > kMaxHandshakeBytes ? "the TLS hand-shake is too long"
                                                     : explain(trouble, *context_);
  }
  return TlsStep::failed;
}

// ---- Data

std::size_t TlsSession::read(std::span<std::byte> to, TlsStep& step) {
  std::size_t total = 0;
  step = TlsStep::done;
  has_more_ = false;
  for (int records = 0; total < to.size() && step == TlsStep::done; ++records) {
    if (has_failed_) {
      step = TlsStep::failed;
      break;
    }
    if (records >= kRecordsPerRead) {
      has_more_ = true;
      break;
    }
    step = read_record(to.subspan(total), total);
  }
  return total;
}

// The context is without SSL_MODE_AUTO_RETRY: OpenSSL comes back after every record, and a flood of
// those without data cannot hold it.
TlsStep TlsSession::read_record(std::span<std::byte> to, std::size_t& total) {
  ERR_clear_error();
  std::size_t count = 0;
  const std::uint64_t messages = messages_;
  const int result = SSL_read_ex(ssl_, to.data(), to.size(), &count);
  total += count;
  if (result == 1) {
    since_empty_record_ += count;
    if (since_empty_record_ >= kForgivingBytes) empty_records_ = 0;
    return TlsStep::done;
  }
  const TlsStep step = outcome(result);
  if (step == TlsStep::ended) has_ended_ = true;
  if (step == TlsStep::failed) return fail();
  // Part of a record is taken whole, so what is left follows a record without data.
  const bool has_left = in_begin_ < in_end_;
  if (step != TlsStep::wants_read || (!has_left && messages_ == messages)) return step;
  since_empty_record_ = 0;
  if (++empty_records_ > kMaxEmptyRecords) return fail();
  return has_left ? TlsStep::done : step;
}

bool TlsSession::has_room() const noexcept { return kBufferBytes - out_end_ >= kRecordRoom; }

std::size_t TlsSession::write(std::span<const std::byte> from, TlsStep& step) {
  std::size_t total = 0;
  step = TlsStep::done;
  while (total < from.size() && has_room() && step == TlsStep::done) {
    if (since_key_update_ >= kKeyUpdateBytes) {
      since_key_update_ = 0;
      SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
    }
    ERR_clear_error();
    std::size_t count = 0;
    const std::size_t asked = std::min(from.size() - total, kRecordBytes);
    const int result = SSL_write_ex(ssl_, from.data() + total, asked, &count);
    total += count;
    since_key_update_ += count;
    if (result == 1) continue;
    // There is room, so it does not wait for the socket.
    step = TlsStep::failed;
    fail();
  }
  return total;
}

TlsStep TlsSession::flush(std::size_t limit) {
  while (out_begin_ < out_end_) {
    const std::size_t left = out_end_ - out_begin_;
    const ssize_t count =
        ::send(socket_, out_.get() + out_begin_, limit > 0 ? std::min(left, limit) : left,
               MSG_NOSIGNAL | MSG_DONTWAIT | (limit > 0 ? MSG_EOR : 0));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return TlsStep::wants_write;
    if (count < 0) return TlsStep::failed;
    out_begin_ += static_cast<std::size_t>(count);
  }
  out_begin_ = out_end_ = 0;
  return TlsStep::done;
}

// ---- The socket, as OpenSSL sees it

const BIO_METHOD* TlsSession::socket_method() {
  static BIO_METHOD* const kMethod = [] {
    BIO_METHOD* const made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket of Tern");
    TERN_CHECK(made != nullptr);
    BIO_meth_set_read(made, &TlsSession::read_socket);
    BIO_meth_set_write(made, &TlsSession::write_socket);
    BIO_meth_set_ctrl(made, &control_socket);
    return made;
  }();
  return kMethod;
}

int TlsSession::read_socket(BIO* bio, char* to, int size) {
  BIO_clear_retry_flags(bio);
  const int count = session_of(bio)->receive({to, static_cast<std::size_t>(size)});
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
  return count;
}

int TlsSession::write_socket(BIO* bio, const char* from, int size) {
  BIO_clear_retry_flags(bio);
  TlsSession& session = *session_of(bio);
  const std::size_t room = kBufferBytes - session.out_end_;
  const std::size_t count = std::min(room, static_cast<std::size_t>(size));
  if (count == 0) {
    BIO_set_retry_write(bio);
    return -1;
  }
  std::memcpy(session.out_.get() + session.out_end_, from, count);
  session.out_end_ += count;
  return static_cast<int>(count);
}

int TlsSession::receive(std::span<char> to) {
  if (in_begin_ == in_end_ && !fill()) return has_ended_ ? 0 : -1;
  const std::size_t count = std::min(to.size(), in_end_ - in_begin_);
  std::memcpy(to.data(), in_.get() + in_begin_, count);
  in_begin_ += count;
  return static_cast<int>(count);
}

// False: errno says why, or the end has come.
bool TlsSession::fill() {
  if (has_ended_) return false;
  if (handshake_bytes_ > kMaxHandshakeBytes && !is_open_) {
    errno = EMSGSIZE;
    return false;
  }
  ssize_t count = 0;
  do {
    count = ::recv(socket_, in_.get(), kBufferBytes, MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  has_ended_ = count == 0;
  if (count <= 0) return false;
  in_begin_ = 0;
  in_end_ = static_cast<std::size_t>(count);
  if (is_open_) return true;
  if (handshake_bytes_ == 0)
    std::memcpy(first_bytes_.data(), in_.get(), std::min<std::size_t>(4, in_end_));
  handshake_bytes_ += in_end_;
  return true;
}

// ---- Callbacks

int TlsSession::note_verdict(int accepted, X509_STORE_CTX* check) {
  if (accepted == 1) return 1;
  const void* const ssl = X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx());
  auto* const self = static_cast<TlsSession*>(SSL_get_app_data(static_cast<const SSL*>(ssl)));
  self->verdict_ = X509_STORE_CTX_get_error(check);
  if (X509* const certificate = X509_STORE_CTX_get_current_cert(check)) {
    self->refused_ = pki::facts_of(certificate);
  }
  return 0;
}

int TlsSession::offer_key(SSL* ssl, const EVP_MD* hash, const unsigned char** name,
                          std::size_t* name_bytes, SSL_SESSION** session) {
  const auto* const self = static_cast<const TlsSession*>(SSL_get_app_data(ssl));
  *session = nullptr;
  if (!self->context_->uses_keys()) return 1;
  const ClusterKey& key = self->context_->keys().front();
  *session = session_with(ssl, key);
  if (*session == nullptr) return 0;
  // After a hand-shake's second start only one hash will do.
  if (hash != nullptr && EVP_MD_get_type(hash) != NID_sha256) {
    SSL_SESSION_free(*session);
    *session = nullptr;
    return 1;
  }
  *name = static_cast<const unsigned char*>(static_cast<const void*>(key.name.data()));
  *name_bytes = key.name.size();
  return 1;
}

int TlsSession::find_key(SSL* ssl, const unsigned char* name, std::size_t name_bytes,
                         SSL_SESSION** session) {
  auto* const self = static_cast<TlsSession*>(SSL_get_app_data(ssl));
  *session = nullptr;
  self->peer_offers_key_ = true;
  if (!self->context_->uses_keys()) return 1;
  const ClusterKey* known = nullptr;
  for (const ClusterKey& key : self->context_->keys()) {
    if (key.name.size() == name_bytes && std::memcmp(key.name.data(), name, name_bytes) == 0) {
      known = &key;
    }
  }
  // A key that nobody has: the peer's proof fails, and both sides are told that the keys differ.
  ClusterKey unknown;
  if (RAND_priv_bytes(unknown.secret.data(), static_cast<int>(unknown.secret.size())) != 1)
    return 0;
  *session = session_with(ssl, known == nullptr ? unknown : *known);
  return *session == nullptr ? 0 : 1;
}

}  // namespace tern::net
