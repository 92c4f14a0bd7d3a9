#pragma once

// What people want to know of a certificate.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

struct x509_st;  // OpenSSL's X509

namespace tern::pki {

struct CertificateFacts {
  std::string subject;             // its common name, else the whole subject
  std::string issuer;              // of who signed it, likewise
  std::vector<std::string> names;  // that a peer may be dialled by: host names and addresses
  std::int64_t not_before_s = 0;   // Unix time
  std::int64_t not_after_s = 0;
  bool is_authority = false;
};

CertificateFacts facts_of(x509_st* certificate);

// All certificates of a PEM file, in its order; there is at least one.
Result<std::vector<CertificateFacts>> read_certificates(const std::string& path);

// 2027-11-21 20:15 UTC
std::string date_text(std::int64_t unix_s);
// "node1, 10.0.0.1"; "no name" if there is none.
std::string names_text(const CertificateFacts& facts);

// The oldest error of OpenSSL's on this thread, in its words; the others are forgotten.
std::string openssl_trouble();

}  // namespace tern::pki
