// Who is refused, and what each side is told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fstream>
#include <optional>

#include "base/clock.h"
#include "net/link.h"
#include "net/tcp/tcp_transport.h"
#include "pki/handles.h"
#include "tests/net/link_pair.h"
#include "tests/net/tls_files.h"

namespace tern::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsRefusal : public ::testing::Test {
 protected:
  using Context = Result<std::shared_ptr<const TlsContext>>;

  Context certified(const std::vector<std::string>& names,
                    pki::Validity validity = TlsFiles::days_from_now(-1, 10),
                    const std::string& cluster = "one") {
    return TlsContext::with_certificates(files.node(cluster, names, validity));
  }
  Context good() { return certified({"127.0.0.1"}); }
  Context keyed(const std::string& name) {
    return TlsContext::with_cluster_keys(files.cluster_key(name));
  }

  static pki::BioHandle open_file(const std::string& path, const char* mode) {
    return pki::BioHandle(BIO_new_file(path.c_str(), mode));
  }
  // A certificate whose only name is the common name of its subject, as it was usual once.
  Context named_by_subject_alone(const std::string& name) {
    const CertificateFiles own = files.node("one", {name});
    const pki::X509Handle certificate(
        PEM_read_bio_X509(open_file(own.certificate, "r").get(), nullptr, nullptr, nullptr));
    const int place = X509_get_ext_by_NID(certificate.get(), NID_subject_alt_name, -1);
    X509_EXTENSION_free(X509_delete_ext(certificate.get(), place));
    const std::string authority = files.folder() + "/one/ca.key";
    const pki::KeyHandle key(
        PEM_read_bio_PrivateKey(open_file(authority, "r").get(), nullptr, nullptr, nullptr));
    EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    EXPECT_EQ(PEM_write_bio_X509(open_file(own.certificate, "w").get(), certificate.get()), 1);
    return TlsContext::with_certificates(own);
  }

  // Both null: plaintext.
  void listen(std::optional<Context> context) {
    if (context) source_b = TlsFiles::source(std::move(*context));
    TcpSettings settings;
    settings.tls = source_b.get();
    auto made = TcpAcceptor::create(loop, clock, {{"127.0.0.1", 0}, {}, settings}, accepted);
    ASSERT_TRUE(made) << made.error().text;
    acceptor = std::move(*made);
  }
  bool step_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 30'000; ++i) {
      if (condition()) return true;
      int work = acceptor->poll();
      if (transport) work += transport->poll() + link->tick();
      if (work == 0) loop.wait(1'000'000);
    }
    return false;
  }
  // A link that dials; the texts that both sides have in the end.
  void dial(std::optional<Context> context) {
    if (context) source_a = TlsFiles::source(std::move(*context));
    TcpSettings settings;
    settings.tls = source_a.get();
    transport.emplace(loop, settings);
    const Endpoint dialled{dialled_host, acceptor->endpoint().port};
    link.emplace(*transport, clock, Link::Setup{{}, {{1, 1}, {2, 2}, 0, dialled, true}}, sink);
    EXPECT_TRUE(step_until([&] { return sink.lost == 1 && !accepted.refused.empty(); }));
    EXPECT_TRUE(accepted.offered.empty());
    ASSERT_EQ(accepted.refused.size(), 1u);
    told_dialler = sink.lost_text;
    told_listener = accepted.refused[0].second;
    EXPECT_EQ(sink.lost_reason, Errc::permission_denied) << told_dialler;
    EXPECT_EQ(accepted.refused[0].first, Errc::permission_denied) << told_listener;
  }

  TlsFiles files;
  std::string dialled_host = "127.0.0.1";
  SteadyClock clock;
  EventLoop loop;
  std::unique_ptr<TlsSource> source_a, source_b;
  RecordingAcceptorSink accepted;
  std::unique_ptr<Acceptor> acceptor;
  RecordingSink sink;
  std::optional<TcpTransport> transport;
  std::optional<Link> link;
  std::string told_dialler, told_listener;
};

TEST_F(TlsRefusal, ADiallerOfAForeignCluster) {
  auto files_a = files.node("two", {"stranger"});
  files_a.authorities = files.node("one", {"unused"}).authorities;  // it would trust the listener
  listen(good());
  dial(TlsContext::with_certificates(files_a));
  EXPECT_THAT(told_listener, AllOf(HasSubstr("stranger"), HasSubstr("\"two\""),
                                   HasSubstr("tls_ca_file does not trust")));
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("127.0.0.1"), HasSubstr("refuses this node's"),
                                  HasSubstr("does not trust the issuer")));
}

TEST_F(TlsRefusal, AListenerOfAForeignCluster) {
  listen(certified({"127.0.0.1"}, TlsFiles::days_from_now(-1, 10), "two"));
  dial(good());
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("issued by \"two\""), HasSubstr("tls_ca_file")));
  EXPECT_THAT(told_listener,
              AllOf(HasSubstr("refuses this node's"), HasSubstr("does not trust the issuer")));
}

TEST_F(TlsRefusal, ADiallerWhoseCertificateHasExpired) {
  listen(good());
  dial(certified({"late"}, TlsFiles::days_from_now(-9, -2)));
  EXPECT_THAT(told_listener,
              AllOf(HasSubstr("late"), HasSubstr("has expired on 20"), HasSubstr("issue a new")));
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("refuses this node's"), HasSubstr("as expired"),
                                  HasSubstr("reload ternd")));
}

TEST_F(TlsRefusal, AListenerWhoseCertificateHasExpired) {
  listen(certified({"127.0.0.1"}, TlsFiles::days_from_now(-9, -2)));
  dial(good());
  EXPECT_THAT(told_dialler, HasSubstr("has expired on 20"));
  EXPECT_THAT(told_listener, HasSubstr("as expired"));
}

TEST_F(TlsRefusal, ACertificateThatIsNotValidYet) {
  listen(good());
  dial(certified({"early"}, TlsFiles::days_from_now(2, 9)));
  EXPECT_THAT(told_listener,
              AllOf(HasSubstr("early"), HasSubstr("not valid before 20"), HasSubstr("clocks")));
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("refuses this node's"), HasSubstr("clocks")));
}

TEST_F(TlsRefusal, AListenerUnderAnotherName) {
  listen(certified({"node7.example", "10.0.0.7"}));
  dial(good());
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("node7.example, 10.0.0.7"),
                                  HasSubstr("not for 127.0.0.1"), HasSubstr("advertise")));
  EXPECT_THAT(told_listener, AllOf(HasSubstr("node7.example, 10.0.0.7"),
                                   HasSubstr("the address that the peer dials")));
}

TEST_F(TlsRefusal, AListenerWhoseSubjectAloneHasTheName) {
  listen(named_by_subject_alone("localhost"));
  dialled_host = "localhost";
  dial(good());
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("(localhost) has no subject alternative name"),
                                  HasSubstr("issue one for localhost")));
  EXPECT_THAT(told_listener, HasSubstr("the peer refuses this node's certificate (for no name"));
}

TEST_F(TlsRefusal, PlaintextToATlsPort) {
  listen(good());
  dial(std::nullopt);
  EXPECT_THAT(told_listener, AllOf(HasSubstr("plaintext"), HasSubstr("peer_security")));
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("TLS alone is spoken"), HasSubstr("peer_security")));
}

TEST_F(TlsRefusal, TlsToAPlaintextPort) {
  listen(std::nullopt);
  dial(good());
  EXPECT_THAT(told_listener,
              AllOf(HasSubstr("where plaintext is spoken"), HasSubstr("peer_security")));
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("speaks in plaintext"), HasSubstr("peer_security")));
}

TEST_F(TlsRefusal, AnotherClusterKey) {
  listen(keyed("one.key"));
  dial(keyed("two.key"));
  EXPECT_THAT(told_listener,
              AllOf(HasSubstr("another cluster key"), HasSubstr("cluster_key_file")));
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("another cluster key"), HasSubstr("cluster_key_file")));
}

TEST_F(TlsRefusal, ACertificateWhereAKeyIsWanted) {
  listen(keyed("one.key"));
  dial(good());
  EXPECT_THAT(told_listener, AllOf(HasSubstr("offers no cluster key"), HasSubstr("peer_security")));
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("\"key\""), HasSubstr("\"tls\"")));
}

TEST_F(TlsRefusal, AKeyWhereACertificateIsWanted) {
  listen(good());
  dial(keyed("one.key"));
  EXPECT_THAT(told_listener, AllOf(HasSubstr("peer_security = \"key\""), HasSubstr("alike")));
  EXPECT_THAT(told_dialler, AllOf(HasSubstr("peer_security = \"tls\""), HasSubstr("alike")));
}

// ---- Clients that are no daemons, made of OpenSSL alone.

class ForeignTls : public TlsRefusal {
 protected:
  void SetUp() override { listen(good()); }
  ~ForeignTls() override { SSL_CTX_free(context); }

  // The alert that the listener answers with; 0 if none.
  int try_handshake() {
    boost::asio::io_context io;
    boost::asio::ip::tcp::socket socket(io);
    socket.connect({boost::asio::ip::make_address("127.0.0.1"), acceptor->endpoint().port});
    socket.non_blocking(true);
    SSL* const ssl = SSL_new(context);
    SSL_set_fd(ssl, socket.native_handle());
    SSL_set_connect_state(ssl);
    static int alert;
    alert = 0;
    SSL_set_info_callback(ssl, [](const SSL*, int where, int value) {
      if ((where & SSL_CB_READ_ALERT) == SSL_CB_READ_ALERT) alert = value & 0xff;
    });
    char byte = 0;
    EXPECT_TRUE(step_until([&] {
      SSL_read(ssl, &byte, 1);  // does the hand-shake first
      return alert != 0 && !accepted.refused.empty();
    }));
    SSL_free(ssl);
    EXPECT_EQ(accepted.refused.at(0).first, Errc::permission_denied);
    return alert;
  }

  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
};

TEST_F(ForeignTls, WithoutACertificate) {
  EXPECT_EQ(try_handshake(), SSL_AD_CERTIFICATE_REQUIRED);
  EXPECT_THAT(accepted.refused[0].second,
              AllOf(HasSubstr("has no certificate"), HasSubstr("tls_certificate_file")));
}

TEST_F(ForeignTls, OfVersion12Alone) {
  SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  EXPECT_EQ(try_handshake(), SSL_AD_PROTOCOL_VERSION);
  EXPECT_THAT(accepted.refused[0].second, HasSubstr("no TLS 1.3"));
}

// ---- A listener that is no daemon, made of OpenSSL alone.

TEST_F(TlsRefusal, AListenerOfVersion12Alone) {
  const CertificateFiles own = files.node("one", {"127.0.0.1"});
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()),
                                                             SSL_CTX_free);
  ASSERT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), own.certificate.c_str()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), own.key.c_str(), SSL_FILETYPE_PEM), 1);
  SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor listener(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  listener.non_blocking(true);
  boost::asio::ip::tcp::socket socket(io);
  std::unique_ptr<SSL, void (*)(SSL*)> ssl(nullptr, SSL_free);

  listen(good());  // nobody dials it; it is stepped along
  source_a = TlsFiles::source(good());
  TcpSettings settings;
  settings.tls = source_a.get();
  transport.emplace(loop, settings);
  link.emplace(
      *transport, clock,
      Link::Setup{{}, {{1, 1}, {2, 2}, 0, {"127.0.0.1", listener.local_endpoint().port()}, true}},
      sink);
  EXPECT_TRUE(step_until([&] {
    boost::system::error_code error;
    if (ssl) {
      SSL_do_handshake(ssl.get());
    } else if (listener.accept(socket, error); !error) {
      socket.non_blocking(true);
      ssl.reset(SSL_new(context.get()));
      SSL_set_fd(ssl.get(), socket.native_handle());
      SSL_set_accept_state(ssl.get());
    }
    return sink.lost == 1;
  }));
  EXPECT_EQ(sink.lost_reason, Errc::permission_denied);
  EXPECT_THAT(sink.lost_text, HasSubstr("the peer has no TLS 1.3, and nothing older is spoken"));
}

// ---- Files

TEST(TlsContext, RefusesAKeyThatEverybodyCanRead) {
  TlsFiles files;
  const CertificateFiles node = files.node("one", {"a"});
  ASSERT_EQ(::chmod(node.key.c_str(), 0644), 0);
  const auto context = TlsContext::with_certificates(node);
  ASSERT_FALSE(context);
  EXPECT_EQ(context.error().code, Errc::permission_denied);
  EXPECT_THAT(context.error().text, AllOf(HasSubstr(node.key), HasSubstr("chmod 600")));
}

TEST(TlsContext, RefusesTheKeyOfAnotherCertificate) {
  TlsFiles files;
  CertificateFiles node = files.node("one", {"a"});
  node.key = files.node("one", {"b"}).key;
  const auto context = TlsContext::with_certificates(node);
  ASSERT_FALSE(context);
  EXPECT_THAT(context.error().text, AllOf(HasSubstr(node.key), HasSubstr("is not the key of")));
}

TEST(TlsContext, RefusesKeyFilesThatAreNone) {
  TlsFiles files;
  const std::string path = files.folder() + "/key";
  const std::string digits(64, 'a');
  for (const std::string& text :
       {std::string(), std::string("# a comment alone\n"), std::string("password\n"),
        digits.substr(1), digits + "a", digits.substr(1) + "g"}) {
    std::ofstream(path) << text;
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    const auto context = TlsContext::with_cluster_keys(path);
    ASSERT_FALSE(context) << text;
    EXPECT_THAT(context.error().text, AllOf(HasSubstr(path), HasSubstr("pki new-key"))) << text;
  }
}

}  // namespace
}  // namespace tern::net
