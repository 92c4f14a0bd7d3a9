#include "pki/authority.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "base/fd.h"
#include "pki/certificate.h"
#include "pki/handles.h"

namespace tern::pki {
namespace {

constexpr mode_t kPublic = 0644;
constexpr mode_t kSecret = 0600;
// How much the clocks of two nodes may differ on the day of issue.
constexpr std::int64_t kBackdateS = 300;
constexpr std::size_t kMaxNameBytes = 253;  // of a host name (RFC 1035)
constexpr std::size_t kMaxCommonName = 64;  // X.520's upper bound
constexpr std::size_t kSerialBytes = 16;

bool is_address(const std::string& name) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

bool is_host_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || name.front() == '-') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.';
  });
}

Status write_new(const std::string& path, std::string_view text, mode_t mode) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file) {
    if (errno == EEXIST) {
      return fail(Errc::already_exists,
                  path + ": exists already; move it away first, or write to another folder");
    }
    return fail_errno(Errc::io_error, path + ": cannot be created", errno);
  }
  while (!text.empty()) {
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count < 0) {
      const int reason = errno;
      ::unlink(path.c_str());
      return fail_errno(Errc::io_error, path + ": cannot be written", reason);
    }
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return {data, static_cast<std::size_t>(size)};
}

Status write_pair(const FilePair& files, X509* certificate, EVP_PKEY* key) {
  const BioHandle public_part(BIO_new(BIO_s_mem())), secret_part(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(public_part.get(), certificate) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(secret_part.get(), key, nullptr, nullptr, 0, nullptr,
                                    nullptr) != 1) {
    return fail(Errc::internal, "the certificate cannot be written: " + openssl_trouble());
  }
  if (auto written = write_new(files.key, text_of(secret_part.get()), kSecret); !written) {
    return written;
  }
  auto written = write_new(files.certificate, text_of(public_part.get()), kPublic);
  if (!written) ::unlink(files.key.c_str());
  return written;
}

Status make_folder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return {};
  if (!std::filesystem::create_directories(folder, error)) {
    return fail(Errc::io_error, folder + ": cannot be made: " + error.message());
  }
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  return {};
}

bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// Everything but the names and the signature.
X509Handle draft(const std::string& common_name, EVP_PKEY* key, const Validity& validity) {
  X509Handle certificate(X509_new());
  std::array<unsigned char, kSerialBytes> serial;
  if (!certificate || RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1) return {};
  serial[0] &= 0x7f;  // serial numbers are positive
  BIGNUM* const number = BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr);
  const bool numbered =
      number != nullptr &&
      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get())) != nullptr;
  BN_free(number);
  const std::string shown = common_name.substr(0, kMaxCommonName);
  const auto* const bytes =
      static_cast<const unsigned char*>(static_cast<const void*>(shown.c_str()));
  const bool complete =
      numbered && X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), validity.not_before_s) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), validity.not_after_s) != nullptr &&
      X509_set_pubkey(certificate.get(), key) == 1 &&
      X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate.get()), NID_commonName,
                                 MBSTRING_UTF8, bytes, static_cast<int>(shown.size()), -1, 0) == 1;
  return complete ? std::move(certificate) : X509Handle();
}

bool sign(X509* certificate, X509* issuer, EVP_PKEY* issuer_key) {
  return X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
         X509_sign(certificate, issuer_key, EVP_sha256()) > 0;
}

FilePair authority_files(const std::string& folder) {
  return {folder + "/ca.pem", folder + "/ca.key"};
}

std::string alternative_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ",") + std::string(is_address(name) ? "IP:" : "DNS:") + name;
  }
  return text;
}

Status check_names(const std::vector<std::string>& names) {
  if (names.empty()) return fail(Errc::invalid_argument, "a certificate needs a name");
  for (const std::string& name : names) {
    if (is_address(name) || is_host_name(name)) continue;
    return fail(Errc::invalid_argument,
                "\"" + name +
                    "\" is neither a host name nor an address, such as node1.example or "
                    "10.0.0.1");
  }
  return {};
}

// Peers would accept nothing that such an issuer has signed.
Status check_issuer(X509* issuer, const std::string& path) {
  const CertificateFacts facts = facts_of(issuer);
  if (!facts.is_authority) {
    return fail(Errc::invalid_argument,
                path +
                    ": is the certificate of a node and no authority's; give the folder that "
                    "`ternctl pki init-ca` has made");
  }
  if (facts.not_after_s <= std::time(nullptr)) {
    return fail(Errc::invalid_argument,
                path + ": the authority has expired on " + date_text(facts.not_after_s) +
                    "; make a new one with `ternctl pki init-ca` in another folder, and append its "
                    "ca.pem to every node's tls_ca_file");
  }
  return {};
}

}  // namespace

Validity valid_for_days(int days) {
  const std::int64_t now = std::time(nullptr);
  return {now - kBackdateS, now + std::int64_t{days} * 86'400};
}

Result<FilePair> make_authority(const std::string& folder, const std::string& name,
                                const Validity& validity) {
  ERR_clear_error();
  const KeyHandle key(EVP_EC_gen("P-256"));
  const X509Handle certificate = key ? draft(name, key.get(), validity) : X509Handle();
  X509* const own = certificate.get();
  // The authority signs nodes' certificates and no further authorities.
  const bool made =
      certificate && add_extension(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      add_extension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      add_extension(own, own, NID_subject_key_identifier, "hash") && sign(own, own, key.get());
  if (!made) return fail(Errc::internal, "no authority could be made: " + openssl_trouble());
  if (auto folder_made = make_folder(folder); !folder_made) {
    return tl::unexpected(folder_made.error());
  }
  const FilePair files = authority_files(folder);
  if (auto written = write_pair(files, own, key.get()); !written) {
    return tl::unexpected(written.error());
  }
  return files;
}

Result<FilePair> issue(const IssueRequest& request) {
  ERR_clear_error();
  if (auto names = check_names(request.names); !names) return tl::unexpected(names.error());
  const FilePair authority = authority_files(request.authority_folder);
  const BioHandle certificate_file(BIO_new_file(authority.certificate.c_str(), "r"));
  const BioHandle key_file(BIO_new_file(authority.key.c_str(), "r"));
  if (!certificate_file || !key_file) {
    return fail_errno(Errc::io_error,
                      (certificate_file ? authority.key : authority.certificate) +
                          ": cannot be read (`ternctl pki init-ca` makes an authority)",
                      errno);
  }
  const X509Handle issuer(PEM_read_bio_X509(certificate_file.get(), nullptr, nullptr, nullptr));
  const KeyHandle issuer_key(PEM_read_bio_PrivateKey(key_file.get(), nullptr, nullptr, nullptr));
  if (!issuer || !issuer_key || X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    return fail(Errc::invalid_argument, authority.certificate + " and " + authority.key +
                                            " are no authority: " + openssl_trouble());
  }
  if (auto usable = check_issuer(issuer.get(), authority.certificate); !usable) {
    return tl::unexpected(usable.error());
  }
  Validity validity = request.validity;
  validity.not_after_s = std::min(validity.not_after_s, facts_of(issuer.get()).not_after_s);
  const KeyHandle key(EVP_EC_gen("P-256"));
  const X509Handle certificate =
      key ? draft(request.names.front(), key.get(), validity) : X509Handle();
  X509* const own = certificate.get();
  const bool made =
      certificate && add_extension(own, issuer.get(), NID_basic_constraints, "critical,CA:FALSE") &&
      add_extension(own, issuer.get(), NID_key_usage, "critical,digitalSignature") &&
      add_extension(own, issuer.get(), NID_ext_key_usage, "serverAuth,clientAuth") &&
      add_extension(own, issuer.get(), NID_subject_key_identifier, "hash") &&
      add_extension(own, issuer.get(), NID_authority_key_identifier, "keyid:always") &&
      add_extension(own, issuer.get(), NID_subject_alt_name, alternative_names(request.names)) &&
      sign(own, issuer.get(), issuer_key.get());
  if (!made) return fail(Errc::internal, "no certificate could be made: " + openssl_trouble());
  if (auto folder_made = make_folder(request.folder); !folder_made) {
    return tl::unexpected(folder_made.error());
  }
  const std::string stem = request.folder + "/" + request.names.front();
  const FilePair files{stem + ".pem", stem + ".key"};
  if (auto written = write_pair(files, own, key.get()); !written) {
    return tl::unexpected(written.error());
  }
  return files;
}

Status make_cluster_key(const std::string& path) {
  std::array<unsigned char, 32> key;
  if (RAND_priv_bytes(key.data(), static_cast<int>(key.size())) != 1) {
    return fail(Errc::internal, "no random numbers: " + openssl_trouble());
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned byte : key) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return write_new(path, text + "\n", kSecret);
}

}  // namespace tern::pki
