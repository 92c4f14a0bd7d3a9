// gzip (raw deflate), zstd and lz4, at the fastest level of each: they are here to compare with.
#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_initStaticCCtx: a context that can never grow
#include <libdeflate.h>
#include <lz4.h>
#include <zstd.h>

#include <climits>

#include "base/check.h"
#include "codec/entropy/stages.h"

namespace tern::codec::entropy {
namespace {

constexpr int kDeflateLevel = 1;
constexpr int kZstdLevel = 1;
constexpr int kLz4Acceleration = 1;

// Pages that nobody wrote to do not count as resident, so unused room is nearly free.
class Room {
 public:
  explicit Room(std::size_t bytes) : memory_(std::malloc(bytes)), bytes_(bytes) {
    TERN_CHECK(memory_ != nullptr);
  }
  ~Room() { std::free(memory_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  void* data() const noexcept { return memory_; }
  std::size_t size() const noexcept { return bytes_; }

 private:
  void* memory_;
  std::size_t bytes_;
};

}  // namespace

struct LibraryContexts::Contexts {
  Room zstd_encode_room{ZSTD_estimateCCtxSize(kZstdLevel)};
  Room zstd_decode_room{ZSTD_estimateDCtxSize()};
  Room lz4_state{static_cast<std::size_t>(LZ4_sizeofState())};
  ZSTD_CCtx* zstd_encode = ZSTD_initStaticCCtx(zstd_encode_room.data(), zstd_encode_room.size());
  ZSTD_DCtx* zstd_decode = ZSTD_initStaticDCtx(zstd_decode_room.data(), zstd_decode_room.size());
  libdeflate_compressor* deflate = libdeflate_alloc_compressor(kDeflateLevel);
  libdeflate_decompressor* inflate = libdeflate_alloc_decompressor();

  Contexts() = default;
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;
  ~Contexts() {
    libdeflate_free_compressor(deflate);
    libdeflate_free_decompressor(inflate);
  }
};

LibraryContexts::LibraryContexts() : contexts_(std::make_unique<Contexts>()) {
  TERN_CHECK(contexts_->zstd_encode != nullptr && contexts_->zstd_decode != nullptr);
  TERN_CHECK(contexts_->deflate != nullptr && contexts_->inflate != nullptr);
}
LibraryContexts::~LibraryContexts() = default;

std::size_t LibraryContexts::encode(Kind kind, Bytes in, MutableBytes out) noexcept {
  if (in.size() > LZ4_MAX_INPUT_SIZE || out.size() > INT_MAX) return 0;
  if (kind == Kind::gzip) {
    return libdeflate_deflate_compress(contexts_->deflate, in.data(), in.size(), out.data(),
                                       out.size());
  }
  if (kind == Kind::zstd) {
    const std::size_t bytes = ZSTD_compressCCtx(contexts_->zstd_encode, out.data(), out.size(),
                                                in.data(), in.size(), kZstdLevel);
    return ZSTD_isError(bytes) != 0 ? 0 : bytes;
  }
  return static_cast<std::size_t>(LZ4_compress_fast_extState(
      contexts_->lz4_state.data(), reinterpret_cast<const char*>(in.data()),
      reinterpret_cast<char*>(out.data()), static_cast<int>(in.size()),
      static_cast<int>(out.size()), kLz4Acceleration));
}

Status LibraryContexts::decode(Kind kind, Bytes in, MutableBytes out) noexcept {
  if (in.size() > INT_MAX || out.size() > INT_MAX) return Status::corrupt;
  bool exact = false;
  if (kind == Kind::gzip) {
    std::size_t read = 0;
    exact = libdeflate_deflate_decompress_ex(contexts_->inflate, in.data(), in.size(), out.data(),
                                             out.size(), &read, nullptr) == LIBDEFLATE_SUCCESS &&
            read == in.size();
  } else if (kind == Kind::zstd) {
    exact = ZSTD_decompressDCtx(contexts_->zstd_decode, out.data(), out.size(), in.data(),
                                in.size()) == out.size();
  } else {
    const int written = LZ4_decompress_safe(
        reinterpret_cast<const char*>(in.data()), reinterpret_cast<char*>(out.data()),
        static_cast<int>(in.size()), static_cast<int>(out.size()));
    exact = written >= 0 && static_cast<std::size_t>(written) == out.size();
  }
  return exact ? Status::ok : Status::corrupt;
}

}  // namespace tern::codec::entropy
