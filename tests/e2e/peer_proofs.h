#pragma once

// The files by which daemons prove themselves to each other, made for a test, as options of ternd.

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "pki/authority.h"
#include "tests/e2e/process.h"

namespace tern::e2e {

using Options = std::vector<std::string>;

inline pki::Validity days(std::int64_t from, std::int64_t to) {
  const std::int64_t now = std::time(nullptr);
  return {now + from * 86'400, now + to * 86'400};
}

class PeerProofs {
 public:
  // For one more node of `cluster`, whose authority is made with its first.
  Options certified(const std::string& cluster, const std::string& name,
                    pki::Validity validity = days(-1, 100)) {
    const std::string authority = folder_.path() + "/" + cluster;
    if (!std::filesystem::exists(authority)) {
      EXPECT_TRUE(pki::make_authority(authority, cluster, days(-10, 1000)));
    }
    const std::string own = folder_.path() + "/node" + std::to_string(++nodes_);
    const auto files = pki::issue({authority, own, {name}, validity});
    EXPECT_TRUE(files) << files.error().text;
    return {"--peer-security",        "tls",
            "--tls-ca-file",          authority + "/ca.pem",
            "--tls-certificate-file", files->certificate,
            "--tls-key-file",         files->key};
  }

  // All nodes with one name have one key.
  Options keyed(const std::string& name) {
    const std::string path = folder_.path() + "/" + name;
    if (!std::filesystem::exists(path)) {
      EXPECT_TRUE(pki::make_cluster_key(path));
    }
    return {"--peer-security", "key", "--cluster-key-file", path};
  }

 private:
  TemporaryFolder folder_;
  int nodes_ = 0;
};

}  // namespace tern::e2e
