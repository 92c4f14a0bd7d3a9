#pragma once

// OpenSSL's verdicts as sentences with a cause and a remedy.

#include <cstdint>
#include <string>

#include "net/tls/tls_context.h"

namespace tern::net {

struct TlsTrouble {
  bool accepts = false;                         // this side was dialled
  std::string host;                             // that this side has dialled
  bool peer_offers_key = false;                 // where certificates are wanted
  bool peer_is_plain = false;                   // it answered with a frame
  unsigned long code = 0;                       // the oldest of OpenSSL's errors; 0: none
  long verdict = 0;                             // on the peer's certificate, X509_V_*
  const pki::CertificateFacts* peer = nullptr;  // its certificate, if it has sent one
};

std::string explain(const TlsTrouble& trouble, const TlsContext& context);

}  // namespace tern::net
