#pragma once

// Certificates and keys for tests, in a folder that goes with them.

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "net/tls/tls_context.h"
#include "pki/authority.h"

namespace tern::net {

class TlsFiles {
 public:
  TlsFiles() {
    char folder[] = "/tmp/tern-tls-XXXXXX";
    EXPECT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  ~TlsFiles() { std::filesystem::remove_all(folder_); }
  TlsFiles(const TlsFiles&) = delete;
  TlsFiles& operator=(const TlsFiles&) = delete;

  static pki::Validity days_from_now(std::int64_t from, std::int64_t to) {
    const std::int64_t now = std::time(nullptr);
    return {now + from * 86'400, now + to * 86'400};
  }
  // A node of the cluster whose authority is `cluster`.
  CertificateFiles node(const std::string& cluster, const std::vector<std::string>& names,
                        pki::Validity validity = days_from_now(-1, 10)) {
    const std::string authority = folder_ + "/" + cluster;
    if (!std::filesystem::exists(authority)) {
      EXPECT_TRUE(pki::make_authority(authority, cluster, days_from_now(-10, 100)));
    }
    const auto files =
        pki::issue({authority, folder_ + "/node" + std::to_string(++nodes_), names, validity});
    EXPECT_TRUE(files) << files.error().text;
    return {authority + "/ca.pem", files->certificate, files->key};
  }
  std::string cluster_key(const std::string& name) {
    std::string path = folder_ + "/" + name;
    EXPECT_TRUE(pki::make_cluster_key(path));
    return path;
  }
  const std::string& folder() const noexcept { return folder_; }

  static std::unique_ptr<TlsSource> source(Result<std::shared_ptr<const TlsContext>> context) {
    EXPECT_TRUE(context) << context.error().text;
    return std::make_unique<TlsSource>(context ? std::move(*context) : nullptr);
  }

 private:
  std::string folder_;
  int nodes_ = 0;
};

}  // namespace tern::net
