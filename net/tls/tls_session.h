#pragma once

// One connection's TLS between a stream of frames and its non-blocking socket. What is sent is
// encrypted straight from the sender's memory into a buffer that goes out in one system call for
// many records; what arrives is read in large pieces and decrypted from there. After the hand-shake
// nothing of ours allocates or locks; OpenSSL takes a few bytes for each record and gives them
// back.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/errc.h"
#include "net/tls/tls_context.h"

struct ssl_st;  // OpenSSL's SSL
struct ssl_session_st;
struct evp_md_st;
struct bio_st;
struct bio_method_st;
struct x509_store_ctx_st;

namespace tern::net {

enum class TlsStep : std::uint8_t {
  done,
  wants_read,   // go on when the socket is readable
  wants_write,  // go on when it is writable
  ended,        // the peer has closed
  failed,       // for good: reason() and trouble() say why
};

class TlsSession {
 public:
  // The socket is borrowed; it stays the same while the session lives.
  static std::unique_ptr<TlsSession> connecting(std::shared_ptr<const TlsContext> context,
                                                int socket, const std::string& host);
  static std::unique_ptr<TlsSession> accepting(std::shared_ptr<const TlsContext> context,
                                               int socket);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Repeated until it is done or has failed; has sent the alert then, if there is one.
  TlsStep handshake();
  // As much as there is, up to the size of `to`. Short: `step` says why, or has_more() that a bounded
  // number of records has been read and another call goes on.
  std::size_t read(std::span<std::byte> to, TlsStep& step);
  // Encrypts what there is room for; what was taken is not read again. REQUIRES: handshake() done.
  std::size_t write(std::span<const std::byte> from, TlsStep& step);
  // Sends what has been encrypted.
  // `limit`: as records of the socket of no more than that; 0: as the kernel likes.
  TlsStep flush(std::size_t limit = 0);
  bool has_unsent() const noexcept { return out_begin_ < out_end_; }
  // Whether read() has something to say before the socket is readable again: more data, or the end.
  bool has_more() const noexcept { return has_more_ || has_failed_ || has_ended_; }
  // A last word, so that the peer knows that nothing was cut off.
  void say_end();

  // Permission_denied: one end does not accept the other.
  Errc reason() const noexcept { return reason_; }
  const std::string& trouble() const noexcept { return trouble_; }
  // Who the peer is by its certificate, or that it has the cluster key; for people.
  const std::string& peer_text() const noexcept { return peer_text_; }

  // Callbacks of OpenSSL's: for certificates that it refuses, and for cluster keys.
  static int note_verdict(int accepted, x509_store_ctx_st* check);
  static int offer_key(ssl_st* ssl, const evp_md_st* hash, const unsigned char** name,
                       std::size_t* name_bytes, ssl_session_st** session);
  static int find_key(ssl_st* ssl, const unsigned char* name, std::size_t name_bytes,
                      ssl_session_st** session);

 private:
  // Two records and more, so that a large frame leaves in few calls and stays in the cache.
  static constexpr std::size_t kBufferBytes = 128 << 10;

  TlsSession(std::shared_ptr<const TlsContext> context, int socket, bool accepts);
  static const bio_method_st* socket_method();
  static int read_socket(bio_st* bio, char* to, int size);
  static int write_socket(bio_st* bio, const char* from, int size);
  int receive(std::span<char> to);
  bool fill();
  bool has_room() const noexcept;
  TlsStep read_record(std::span<std::byte> to, std::size_t& total);
  TlsStep outcome(int result);
  TlsStep fail();
  void note_peer();

  std::shared_ptr<const TlsContext> context_;
  int socket_;
  bool accepts_;
  std::string host_;  // that was dialled
  ssl_st* ssl_ = nullptr;
  bool is_open_ = false;
  bool has_failed_ = false;
  bool has_ended_ = false;  // the socket's end was read
  bool has_more_ = false;   // read() has stopped at its bound
  bool peer_offers_key_ = false;
  long verdict_ = 0;  // on the certificate that was refused
  pki::CertificateFacts refused_;
  std::uint64_t handshake_bytes_ = 0;
  std::array<char, 4> first_bytes_{};  // of the peer
  std::uint64_t since_key_update_ = 0;
  std::uint64_t messages_ = 0;  // of the peer, that TLS itself has for an open connection
  int empty_records_ = 0;       // of the peer, with little data between them
  std::size_t since_empty_record_ = 0;
  Errc reason_ = Errc::ok;
  std::string trouble_;
  std::string peer_text_;

  // Bytes as they are on the wire.
  std::unique_ptr<std::byte[]> in_, out_;
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::size_t out_begin_ = 0, out_end_ = 0;
};

}  // namespace tern::net
