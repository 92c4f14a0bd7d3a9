#include "pki/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "pki/certificate.h"
#include "pki/handles.h"

namespace tern::pki {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Authority : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tern-pki-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  static int mode_of(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
    return static_cast<int>(facts.st_mode & 0777);
  }
  static X509Handle load(const std::string& path) {
    const BioHandle file(BIO_new_file(path.c_str(), "r"));
    return X509Handle(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
  }
  // X509_V_OK, or why the certificate is not good for the purpose.
  int verify(const std::string& certificate, const std::string& authority, int purpose) {
    const X509Handle leaf = load(certificate), root = load(authority);
    X509_STORE* const store = X509_STORE_new();
    X509_STORE_add_cert(store, root.get());
    X509_STORE_CTX* const check = X509_STORE_CTX_new();
    X509_STORE_CTX_init(check, store, leaf.get(), nullptr);
    X509_STORE_CTX_set_purpose(check, purpose);
    X509_verify_cert(check);
    const int verdict = X509_STORE_CTX_get_error(check);
    X509_STORE_CTX_free(check);
    X509_STORE_free(store);
    return verdict;
  }

  std::string folder;
};

TEST_F(Authority, IssuesWhatServesBothEnds) {
  const auto authority = make_authority(folder + "/ca", "lab", valid_for_days(100));
  ASSERT_TRUE(authority) << authority.error().text;
  const auto node = issue({folder + "/ca",
                           folder + "/node",
                           {"node1.example", "10.0.0.1", "fd00::1"},
                           valid_for_days(10)});
  ASSERT_TRUE(node) << node.error().text;
  for (const int purpose : {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER}) {
    EXPECT_EQ(verify(node->certificate, authority->certificate, purpose), X509_V_OK);
  }
  const auto facts = read_certificates(node->certificate);
  ASSERT_TRUE(facts);
  ASSERT_EQ(facts->size(), 1u);
  const CertificateFacts& one = facts->front();
  EXPECT_EQ(one.subject, "node1.example");
  EXPECT_EQ(one.issuer, "lab");
  EXPECT_THAT(one.names, ElementsAre("node1.example", "10.0.0.1", "fd00::1"));
  EXPECT_FALSE(one.is_authority);
  EXPECT_EQ((one.not_after_s - one.not_before_s) / 86'400, 10);
  EXPECT_TRUE(read_certificates(authority->certificate)->front().is_authority);
}

TEST_F(Authority, ClosesItsSecrets) {
  const auto authority = make_authority(folder + "/ca", "lab", valid_for_days(1));
  const auto node = issue({folder + "/ca", folder, {"a"}, valid_for_days(1)});
  ASSERT_TRUE(authority && node && make_cluster_key(folder + "/key"));
  EXPECT_EQ(mode_of(authority->key), 0600);
  EXPECT_EQ(mode_of(node->key), 0600);
  EXPECT_EQ(mode_of(folder + "/key"), 0600);
  EXPECT_EQ(mode_of(folder + "/ca"), 0700);
}

TEST_F(Authority, OverwritesNothing) {
  ASSERT_TRUE(make_authority(folder, "one", valid_for_days(1)));
  const auto again = make_authority(folder, "two", valid_for_days(1));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::already_exists);
  EXPECT_THAT(again.error().text, AllOf(HasSubstr(folder + "/ca.key"), HasSubstr("move it away")));
  EXPECT_EQ(read_certificates(folder + "/ca.pem")->front().subject, "one");
  ASSERT_TRUE(make_cluster_key(folder + "/key"));
  EXPECT_EQ(make_cluster_key(folder + "/key").error().code, Errc::already_exists);
}

TEST_F(Authority, MakesADifferentKeyEveryTime) {
  ASSERT_TRUE(make_cluster_key(folder + "/a") && make_cluster_key(folder + "/b"));
  const auto text = [&](const char* name) {
    std::ifstream file(folder + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(text("/a").size(), 65u);
  EXPECT_NE(text("/a"), text("/b"));
}

TEST_F(Authority, RefusesNamesThatAreNone) {
  ASSERT_TRUE(make_authority(folder, "lab", valid_for_days(1)));
  for (const std::string& name : {std::string(), std::string("a,DNS:b"), std::string("a b"),
                                  std::string("../a"), std::string("-a"), std::string(254, 'a')}) {
    const auto node = issue({folder, folder, {name}, valid_for_days(1)});
    ASSERT_FALSE(node) << name;
    EXPECT_EQ(node.error().code, Errc::invalid_argument) << name;
  }
  EXPECT_FALSE(issue({folder, folder, {}, valid_for_days(1)}));
}

TEST_F(Authority, IssuesNothingThatOutlivesIt) {
  const Validity short_time = valid_for_days(10);
  ASSERT_TRUE(make_authority(folder, "lab", short_time));
  const auto node = issue({folder, folder, {"a"}, valid_for_days(365)});
  ASSERT_TRUE(node) << node.error().text;
  EXPECT_EQ((*read_certificates(node->certificate))[0].not_after_s, short_time.not_after_s);
}

TEST_F(Authority, IssuesNothingThatNobodyAccepts) {
  const std::int64_t now = valid_for_days(0).not_after_s;
  ASSERT_TRUE(make_authority(folder, "lab", {now - 200, now - 100}));
  const auto late = issue({folder, folder, {"a"}, valid_for_days(1)});
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().text, AllOf(HasSubstr(folder + "/ca.pem"), HasSubstr("has expired on")));
  EXPECT_FALSE(std::filesystem::exists(folder + "/a.pem"));

  ASSERT_TRUE(make_authority(folder + "/good", "lab", valid_for_days(1)));
  const auto node = issue({folder + "/good", folder + "/bad", {"ca"}, valid_for_days(1)});
  ASSERT_TRUE(node);
  const auto chained = issue({folder + "/bad", folder, {"a"}, valid_for_days(1)});
  ASSERT_FALSE(chained);
  EXPECT_THAT(chained.error().text, HasSubstr("no authority's"));
}

TEST_F(Authority, NamesTheFileThatIsMissingOrNone) {
  EXPECT_THAT(issue({folder, folder, {"a"}, valid_for_days(1)}).error().text,
              AllOf(HasSubstr(folder + "/ca.pem"), HasSubstr("pki init-ca")));
  std::ofstream(folder + "/empty") << "nothing";
  EXPECT_THAT(read_certificates(folder + "/empty").error().text,
              HasSubstr("has no certificate in PEM"));
}

}  // namespace
}  // namespace tern::pki
