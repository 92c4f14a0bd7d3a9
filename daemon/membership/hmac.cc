#include "daemon/membership/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <cerrno>
#include <memory>

#include "base/check.h"

namespace tern::daemon {
namespace {

struct FreeMac {
  void operator()(EVP_MAC* mac) const noexcept { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const noexcept { EVP_MAC_CTX_free(context); }
};

// The value of a lower-case digit, or -1.
int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

const unsigned char* raw(std::span<const std::byte> bytes) noexcept {
  return static_cast<const unsigned char*>(static_cast<const void*>(bytes.data()));
}

}  // namespace

// OpenSSL fails here only without memory or without its default provider: nothing that could go on.
Digest hmac_sha256(std::span<const std::byte> key,
                   std::initializer_list<std::span<const std::byte>> parts) {
  const std::unique_ptr<EVP_MAC, FreeMac> mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  TERN_CHECK(mac != nullptr);
  const std::unique_ptr<EVP_MAC_CTX, FreeMac> context(EVP_MAC_CTX_new(mac.get()));
  TERN_CHECK(context != nullptr);
  char digest_name[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string("digest", digest_name, 0),
      OSSL_PARAM_construct_end(),
  };
  // A null key would mean "the key as before" to OpenSSL.
  static constexpr std::byte kNoKey[1]{};
  const auto used_key = key.empty() ? std::span<const std::byte>(kNoKey, 0) : key;
  TERN_CHECK(EVP_MAC_init(context.get(), raw(used_key), used_key.size(), parameters) == 1);
  for (const auto part : parts) {
    if (part.empty()) continue;
    TERN_CHECK(EVP_MAC_update(context.get(), raw(part), part.size()) == 1);
  }
  Digest digest;
  std::size_t size = 0;
  auto* const out = static_cast<unsigned char*>(static_cast<void*>(digest.data()));
  TERN_CHECK(EVP_MAC_final(context.get(), out, &size, digest.size()) == 1);
  TERN_CHECK(size == digest.size());
  return digest;
}

bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  if (a.size() != b.size()) return false;
  return a.empty() || CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void random_bytes(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const ssize_t count = ::getrandom(out.data(), out.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    TERN_CHECK(count > 0);  // present since Linux 3.17
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    const auto value = std::to_integer<unsigned>(b);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

bool from_hex(std::string_view text, std::span<std::byte> out) noexcept {
  if (text.size() != out.size() * 2) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = hex_value(text[2 * i]);
    const int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::byte>(high * 16 + low);
  }
  return true;
}

}  // namespace tern::daemon
