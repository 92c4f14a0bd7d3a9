#include "pki/certificate.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>
#include <cerrno>
#include <ctime>

#include "pki/handles.h"

namespace tern::pki {
namespace {

struct FreeNames {
  void operator()(GENERAL_NAMES* names) const noexcept { GENERAL_NAMES_free(names); }
};

// Foreign text on its way to a log or a terminal.
std::string printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string bytes_of(const ASN1_STRING* value) {
  const unsigned char* const data = ASN1_STRING_get0_data(value);
  return {data, data + ASN1_STRING_length(value)};
}

std::string name_text(const X509_NAME* name) {
  if (const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1); at >= 0) {
    return printable(bytes_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at))));
  }
  std::array<char, 256> line{};
  X509_NAME_oneline(name, line.data(), static_cast<int>(line.size()));
  return printable(line.data());
}

std::string address_text(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int length = ASN1_STRING_length(address);
  const int family = length == 4 ? AF_INET : AF_INET6;
  if (length != 4 && length != 16) return "?";
  inet_ntop(family, ASN1_STRING_get0_data(address), text.data(), text.size());
  return text.data();
}

std::int64_t unix_time(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  return timegm(&parts);
}

}  // namespace

CertificateFacts facts_of(X509* certificate) {
  CertificateFacts facts;
  facts.subject = name_text(X509_get_subject_name(certificate));
  facts.issuer = name_text(X509_get_issuer_name(certificate));
  facts.not_before_s = unix_time(X509_get0_notBefore(certificate));
  facts.not_after_s = unix_time(X509_get0_notAfter(certificate));
  facts.is_authority = X509_check_ca(certificate) == 1;
  const std::unique_ptr<GENERAL_NAMES, FreeNames> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) facts.names.push_back(printable(bytes_of(name->d.dNSName)));
    if (name->type == GEN_IPADD) facts.names.push_back(address_text(name->d.iPAddress));
  }
  return facts;
}

Result<std::vector<CertificateFacts>> read_certificates(const std::string& path) {
  ERR_clear_error();
  const BioHandle file(BIO_new_file(path.c_str(), "r"));
  if (!file) return fail_errno(Errc::io_error, path + ": cannot be read", errno);
  std::vector<CertificateFacts> all;
  while (const X509Handle one{PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr)}) {
    all.push_back(facts_of(one.get()));
  }
  ERR_clear_error();  // the end of the file is one
  if (all.empty()) {
    return fail(Errc::invalid_argument,
                path + ": has no certificate in PEM (a block that begins BEGIN CERTIFICATE)");
  }
  return all;
}

std::string date_text(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return text.data();
}

std::string names_text(const CertificateFacts& facts) {
  std::string text;
  for (const std::string& name : facts.names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "no name" : text;
}

std::string openssl_trouble() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* const text = ERR_reason_error_string(code);
  return text == nullptr ? "error " + std::to_string(code) : text;
}

}  // namespace tern::pki
