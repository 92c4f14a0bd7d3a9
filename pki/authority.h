#pragma once

// A certificate authority of one cluster in a folder, for those who have none: ca.pem, which every
// node gets, and ca.key, which stays where certificates are issued. All keys are ECDSA over P-256,
// in files that their owner alone may read. Nothing that exists is overwritten.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tern::pki {

struct Validity {
  std::int64_t not_before_s = 0;  // Unix time
  std::int64_t not_after_s = 0;
};
// From a little before now, because clocks differ.
Validity valid_for_days(int days);

struct FilePair {
  std::string certificate, key;
};

Result<FilePair> make_authority(const std::string& folder, const std::string& name,
                                const Validity& validity);

struct IssueRequest {
  std::string authority_folder;
  std::string folder;              // where to write
  std::vector<std::string> names;  // host names and addresses; the first one names the files
  Validity validity;
};
// A certificate that serves both ends of a connection. It ends when the authority does, at the
// latest; one that has ended is refused.
Result<FilePair> issue(const IssueRequest& request);

// 256 random bits in hexadecimal digits: the key that all nodes of a cluster share instead of
// certificates.
Status make_cluster_key(const std::string& path);

}  // namespace tern::pki
