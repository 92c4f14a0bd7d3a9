// What one call of a TLS session does at most, whatever records the peer makes.

#include "net/tls/tls_session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "tests/net/tls_files.h"

namespace tern::net {
namespace {

// A session that accepts, and a peer made of OpenSSL alone.
class TlsSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    ours_ = Fd(ends[0]);
    peers_ = Fd(ends[1]);
    const int room = 1 << 20;
    ASSERT_EQ(::setsockopt(peers_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    ASSERT_EQ(::fcntl(peers_.get(), F_SETFL, O_NONBLOCK), 0);
    const CertificateFiles own = files_.node("one", {"peer"});
    SSL_CTX_use_certificate_chain_file(context_.get(), own.certificate.c_str());
    SSL_CTX_use_PrivateKey_file(context_.get(), own.key.c_str(), SSL_FILETYPE_PEM);
    peer_.reset(SSL_new(context_.get()));
    SSL_set_fd(peer_.get(), peers_.get());
    SSL_set_connect_state(peer_.get());
    auto accepts = TlsContext::with_certificates(files_.node("one", {"us"}));
    ASSERT_TRUE(accepts) << accepts.error().text;
    session = TlsSession::accepting(std::move(*accepts), ours_.get());
    for (int i = 0; i < 100 && !is_open_; ++i) {
      SSL_do_handshake(peer_.get());
      is_open_ = session->handshake() == TlsStep::done;
    }
    ASSERT_TRUE(is_open_) << session->trouble();
  }

  // A record of as many bytes.
  void write(std::size_t bytes) {
    const std::vector<char> data(bytes, 'x');
    ASSERT_EQ(SSL_write(peer_.get(), data.data(), static_cast<int>(bytes)),
              static_cast<int>(bytes));
  }
  void change_keys() {
    ASSERT_EQ(SSL_key_update(peer_.get(), SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_EQ(SSL_do_handshake(peer_.get()), 1);
  }
  std::size_t read() { return session->read(into_, step); }

  std::unique_ptr<TlsSession> session;
  TlsStep step = TlsStep::done;

 private:
  TlsFiles files_;
  Fd ours_, peers_;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_{SSL_CTX_new(TLS_client_method()),
                                                        SSL_CTX_free};
  std::unique_ptr<SSL, void (*)(SSL*)> peer_{nullptr, SSL_free};
  bool is_open_ = false;
  std::vector<std::byte> into_ = std::vector<std::byte>(std::size_t{1} << 20);
};

// A zone says by which interface this machine dials, and no certificate has it.
TEST(TlsSessionTo, AnAddressWithAZoneWantsACertificateOfTheAddress) {
  TlsFiles files;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const Fd ours(ends[0]), peers(ends[1]);
  auto own = TlsContext::with_certificates(files.node("one", {"us"}));
  auto theirs = TlsContext::with_certificates(files.node("one", {"fe80::1"}));
  ASSERT_TRUE(own && theirs);
  const auto dialling = TlsSession::connecting(std::move(*own), ours.get(), "fe80::1%eth0");
  const auto accepting = TlsSession::accepting(std::move(*theirs), peers.get());
  bool is_open = false;
  for (int i = 0; i < 100 && !is_open; ++i) {
    const bool here = dialling->handshake() == TlsStep::done;
    is_open = accepting->handshake() == TlsStep::done && here;
  }
  EXPECT_TRUE(is_open) << dialling->trouble();
}

TEST_F(TlsSessionTest, ReadsABoundedNumberOfRecordsInACall) {
  for (int i = 0; i < 200; ++i) write(1);
  std::size_t total = 0, calls = 0;
  do {
    const std::size_t count = read();
    EXPECT_LE(count, 64u);
    total += count;
    ++calls;
  } while (session->has_more());
  EXPECT_EQ(total, 200u);
  EXPECT_EQ(calls, 4u);
  EXPECT_EQ(step, TlsStep::wants_read);
}

TEST_F(TlsSessionTest, ReadsOnAfterNewKeys) {
  write(100);
  change_keys();
  write(100);
  change_keys();
  EXPECT_EQ(read(), 200u);
  EXPECT_EQ(step, TlsStep::wants_read);
  EXPECT_FALSE(session->has_more());
}

TEST_F(TlsSessionTest, TakesNewKeysAsOftenAsThereIsDataForThem) {
  for (int i = 0; i < 100; ++i) {
    change_keys();
    std::size_t total = 0;
    for (int record = 0; record < 64; ++record) {
      write(16'384);
      total += read();
    }
    ASSERT_EQ(total, std::size_t{64} * 16'384) << session->trouble();
  }
}

TEST_F(TlsSessionTest, EndsAConnectionThatChangesKeysWithoutEnd) {
  for (int i = 0; i < 100; ++i) change_keys();
  EXPECT_EQ(read(), 0u);
  EXPECT_EQ(step, TlsStep::failed);
  EXPECT_THAT(session->trouble(), ::testing::HasSubstr("changes its TLS keys without end"));
}

TEST_F(TlsSessionTest, EndsOneWhoseNewKeysComeOneByOne) {
  int changes = 0;
  for (; changes < 100 && step != TlsStep::failed; ++changes) {
    change_keys();
    EXPECT_EQ(read(), 0u);
  }
  EXPECT_GE(changes, 8);
  EXPECT_LE(changes, 9);
  EXPECT_THAT(session->trouble(), ::testing::HasSubstr("changes its TLS keys without end"));
}

TEST_F(TlsSessionTest, EndsOneThatPutsAByteBetween) {
  for (int i = 0; i < 100; ++i) {
    change_keys();
    write(1);
  }
  EXPECT_LT(read(), 10u);
  read();
  EXPECT_EQ(step, TlsStep::failed);
  EXPECT_TRUE(session->has_more());
}

}  // namespace
}  // namespace tern::net
