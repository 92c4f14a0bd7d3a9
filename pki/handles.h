#pragma once

// OpenSSL's objects with an owner each.

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

namespace tern::pki {

struct FreeHandle {
  void operator()(BIO* bio) const noexcept { BIO_free_all(bio); }
  void operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const noexcept { X509_free(certificate); }
};

using BioHandle = std::unique_ptr<BIO, FreeHandle>;
using KeyHandle = std::unique_ptr<EVP_PKEY, FreeHandle>;
using X509Handle = std::unique_ptr<X509, FreeHandle>;

}  // namespace tern::pki
