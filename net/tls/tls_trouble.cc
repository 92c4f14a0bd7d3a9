#include "net/tls/tls_trouble.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

namespace tern::net {
namespace {

std::string of_certificate(const TlsTrouble& trouble) {
  return trouble.peer == nullptr ? "the peer's certificate"
                                 : "the peer's certificate (" + trouble.peer->subject + ")";
}

std::string explain_verdict(const TlsTrouble& trouble) {
  const std::string certificate = of_certificate(trouble);
  switch (trouble.verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return certificate + " has expired" +
             (trouble.peer ? " on " + pki::date_text(trouble.peer->not_after_s) : "") +
             ": issue a new one there and reload ternd";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return certificate + " is not valid before" +
             (trouble.peer ? " " + pki::date_text(trouble.peer->not_before_s) : " later") +
             ": are the clocks of both nodes right?";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      if (trouble.peer && trouble.peer->names.empty()) {
        return certificate +
               " has no subject alternative name, and its subject does not count: issue one for " +
               trouble.host + " that was dialled (`ternctl pki issue`)";
      }
      return certificate + " is for " +
             (trouble.peer ? pki::names_text(*trouble.peer) : "another name") + ", and not for " +
             trouble.host +
             " that was dialled: issue one with that name, or correct `advertise` "
             "there";
    case X509_V_ERR_INVALID_PURPOSE:
      return certificate + " is not for " + (trouble.accepts ? "clients" : "servers") +
             ": it needs both extended key usages, serverAuth and clientAuth";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return certificate + " was issued by" +
             (trouble.peer ? " \"" + trouble.peer->issuer + "\"" : " an authority") +
             ", which tls_ca_file does not trust here: are both nodes of one cluster?";
    default:
      return certificate + " was refused: " + X509_verify_cert_error_string(trouble.verdict);
  }
}

std::string own_certificate(const TlsContext& context) {
  if (context.own().empty()) return "this node's proof";
  const pki::CertificateFacts& own = context.own().front();
  return "this node's certificate (for " + pki::names_text(own) + ", until " +
         pki::date_text(own.not_after_s) + ")";
}

// What the peer says of this side.
std::string explain_alert(int alert, const TlsTrouble& trouble, const TlsContext& context) {
  const std::string refuses = "the peer refuses " + own_certificate(context);
  switch (alert) {
    case SSL_AD_CERTIFICATE_EXPIRED:
      return refuses + " as expired: issue a new one here and reload ternd";
    case SSL_AD_UNKNOWN_CA:
      return trouble.peer_offers_key
                 ? "the peer has peer_security = \"key\" and this node \"tls\": make them alike"
                 : refuses +
                       ": its tls_ca_file does not trust the issuer; are both nodes of one "
                       "cluster?";
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
      return refuses + ", by " + SSL_alert_desc_string_long(alert) +
             ": is it for the address that the peer dials, and are the clocks right? The peer's "
             "log "
             "says more";
    case SSL_AD_CERTIFICATE_REQUIRED:
      return "the peer wants a certificate and this node has sent none: set tls_certificate_file";
    case SSL_AD_ILLEGAL_PARAMETER:  // how OpenSSL refuses a wrong key; others: decrypt_error
    case SSL_AD_DECRYPT_ERROR:
      return context.uses_keys() ? "the peer has another cluster key: cluster_key_file must be the "
                                   "same on all nodes"
                                 : refuses + ": its signature is wrong";
    case SSL_AD_HANDSHAKE_FAILURE:
    case SSL_AD_MISSING_EXTENSION:
      return std::string("the peer finds nothing in common: is its peer_security \"") +
             (context.uses_keys() ? "tls" : "key") + "\", where this node has \"" +
             (context.uses_keys() ? "key" : "tls") + "\"?";
    case SSL_AD_PROTOCOL_VERSION:
      return "the peer has no TLS 1.3, and nothing older is spoken";
    default:
      return std::string("the peer ended the TLS connection: ") + SSL_alert_desc_string_long(alert);
  }
}

}  // namespace

std::string explain(const TlsTrouble& trouble, const TlsContext& context) {
  if (trouble.peer_is_plain) {
    return "the peer speaks in plaintext, and this node TLS alone: set peer_security alike on both";
  }
  const int reason = ERR_GET_REASON(trouble.code);
  // OpenSSL's number of an alert that was received.
  if (reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256) {
    return explain_alert(reason - SSL_AD_REASON_OFFSET, trouble, context);
  }
  switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return context.uses_keys()
                 ? "the peer has peer_security = \"tls\" and this node \"key\": make "
                   "them alike"
                 : explain_verdict(trouble);
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return trouble.peer_offers_key
                 ? "the peer has peer_security = \"key\" and this node \"tls\": make them alike"
                 : "the peer has no certificate: set tls_certificate_file there, or is it a "
                   "stranger?";
    case SSL_R_BINDER_DOES_NOT_VERIFY:
      return "the peer has another cluster key: cluster_key_file must be the same on all nodes";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_WRONG_SSL_VERSION:
      return "the peer offers no TLS 1.3, and nothing older is spoken";
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_MISSING_SIGALGS_EXTENSION:
      return context.uses_keys()
                 ? "the peer offers no cluster key: is its peer_security \"tls\"? This node's is "
                   "\"key\""
                 : "the peer and this node have no cipher in common";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
      return "the peer does not speak TLS";
    default:
      break;
  }
  const char* const text = trouble.code == 0 ? nullptr : ERR_reason_error_string(trouble.code);
  return std::string("TLS failed: ") + (text == nullptr ? "the connection ended" : text);
}

}  // namespace tern::net
