// The same port behind a cluster key: before the hand-shake ends, and after it by who has the key.

#include "tests/attack/secure_peers.h"

#include <openssl/ssl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "net/tls/tls_context.h"
#include "tests/attack/attack.h"
#include "tests/attack/sockets.h"
#include "tests/e2e/hostile_peer.h"

namespace tern::attack {
namespace {

constexpr std::array<unsigned char, 2> kSuite{0x13, 0x01};  // TLS_AES_128_GCM_SHA256

using Context = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;
using Session = std::unique_ptr<SSL, void (*)(SSL*)>;

// What a client of this process offers next.
struct Offer {
  std::string name;
  std::array<unsigned char, 32> secret{};
  std::uint32_t early_bytes = 0;
};
Offer offer;

SSL_SESSION* session_of_offer(SSL* ssl) {
  SSL_SESSION* const session = SSL_SESSION_new();
  SSL_SESSION_set1_master_key(session, offer.secret.data(), offer.secret.size());
  SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kSuite.data()));
  SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  SSL_SESSION_set_max_early_data(session, offer.early_bytes);
  return session;
}

Context make_context() {
  Context context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_psk_use_session_callback(
      context.get(), [](SSL* ssl, const EVP_MD*, const unsigned char** name, std::size_t* bytes,
                        SSL_SESSION** session) {
        const void* const text = offer.name.data();
        *name = static_cast<const unsigned char*>(text);
        *bytes = offer.name.size();
        *session = session_of_offer(ssl);
        return 1;
      });
  return context;
}

Session begin(const Context& context, const Fd& socket) {
  Session session(SSL_new(context.get()), SSL_free);
  SSL_set_fd(session.get(), socket.get());
  SSL_set_connect_state(session.get());
  return session;
}

void tls_half_open(Assault& assault) {
  const std::string begins("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  Held<Fd> held(512);
  while (assault.goes_on()) push(held.hold(connect_port(assault.target.port)), begins);
}

void tls_garbage(Assault& assault) {
  while (assault.goes_on()) {
    const Fd socket = connect_port(assault.target.port);
    auto bytes = assault.noise(5 + assault.below(20'000));
    bytes[0] = static_cast<std::byte>(20 + assault.below(4));
    bytes[1] = std::byte{3};
    bytes[2] = static_cast<std::byte>(assault.below(5));
    push(socket, bytes);
    if (assault.below(4) == 0) await_bytes(socket);
  }
}

void draw_offer(Assault& assault) {
  const auto name = assault.noise(1 + assault.below(assault.below(8) == 0 ? 128 : 24));
  offer.name.assign(name.size(), 'x');
  std::memcpy(offer.name.data(), name.data(), name.size());
  if (assault.below(2) == 0) offer.name = "tern-0123456789abcdef";
  for (auto& byte : offer.secret) byte = static_cast<unsigned char>(assault.random());
}

void key_identities(Assault& assault) {
  const Context context = make_context();
  while (assault.goes_on()) {
    draw_offer(assault);
    const Fd socket = connect_port(assault.target.port);
    SSL_do_handshake(begin(context, socket).get());
  }
}

// From now on the cluster's key, which is given as text, is offered.
bool offer_key(const std::string& text) {
  const Fd file(::memfd_create("key", MFD_CLOEXEC));
  ::fchmod(file.get(), 0600);
  if (::write(file.get(), text.data(), text.size()) < 0) return false;
  const auto keys =
      net::TlsContext::with_cluster_keys("/proc/self/fd/" + std::to_string(file.get()));
  if (!keys) return false;
  const auto& key = (*keys)->keys().front();
  offer = {key.name, {}, 0};
  std::copy(key.secret.begin(), key.secret.end(), offer.secret.begin());
  return true;
}

// Also by who has the key: the proof comes after that.
void early_data(Assault& assault) {
  const Context context = make_context();
  const std::string data(10'000, 'x');
  while (assault.goes_on()) {
    if (assault.below(2) == 0 || !offer_key(assault.target.key)) draw_offer(assault);
    offer.early_bytes = 1 << 20;
    const Fd socket = connect_port(assault.target.port);
    const Session session = begin(context, socket);
    std::size_t written = 0;
    for (int i = 0; i < 20; ++i) {
      if (SSL_write_early_data(session.get(), data.data(), data.size(), &written) != 1) break;
    }
    SSL_do_handshake(session.get());
  }
}

// By who has the key: a link that does nothing but ask for new keys.
void key_updates(Assault& assault) {
  if (!offer_key(assault.target.key)) return;
  const Context context = make_context();
  while (true) {
    const Fd socket = connect_port(assault.target.port);
    const Session session = begin(context, socket);
    if (SSL_do_handshake(session.get()) != 1) continue;
    while (assault.goes_on()) {
      SSL_key_update(session.get(), SSL_KEY_UPDATE_REQUESTED);
      if (SSL_do_handshake(session.get()) != 1) break;
    }
  }
}

constexpr Attack kAttacks[] = {
    {"tls_half_open", "hand-shakes that never end keep no node out", tls_half_open, Stage::key},
    {"tls_garbage", "records that are none end their connection alone", tls_garbage, Stage::key},
    {"key_identities", "without the key nobody is heard, whatever name is offered", key_identities,
     Stage::key},
    {"early_data", "what comes before the proof is not read", early_data, Stage::key},
    {"key_updates", "asking for new keys without end stops no lane", key_updates, Stage::key},
};

}  // namespace

bool say_hello_with_key(int port, const std::string& key, std::uint64_t node) {
  static const Context kContext = make_context();
  static std::string offered;
  if (offered != key && !offer_key(key)) return false;
  offered = key;
  e2e::HostilePeer peer(port, kContext.get());
  return peer.is_secure() && peer.hello(e2e::HostilePeer::hello_body(wire::kConductorLane, node));
}

std::span<const Attack> secure_peer_attacks() { return kAttacks; }

}  // namespace tern::attack
