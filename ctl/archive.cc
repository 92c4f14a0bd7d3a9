#include "ctl/archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace tern::ctl {
namespace {

constexpr std::size_t kRecord = 512;

// Of a member; numbers are octal text. POSIX.1-2017, pax, "ustar Interchange Format".
struct TarHeader {
  char name[100], mode[8], uid[8], gid[8], size[12], modified[12], checksum[8];
  char type;
  char link[100], magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155];
  char padding[12];
};
static_assert(sizeof(TarHeader) == kRecord);

template <std::size_t kBytes>
void put(char (&field)[kBytes], std::string_view text) {
  TERN_CHECK(text.size() <= kBytes);
  std::memcpy(field, text.data(), text.size());
}

// False: the format has no room for it.
bool put_name(TarHeader& header, std::string_view name) {
  if (name.size() > sizeof(header.name)) {  // the first slash that leaves room for what follows it
    const std::size_t slash = name.find('/', name.size() - sizeof(header.name) - 1);
    if (slash == 0 || slash == name.npos || slash > sizeof(header.prefix)) return false;
    put(header.prefix, name.substr(0, slash));
    name.remove_prefix(slash + 1);
  }
  put(header.name, name);
  return !name.empty();
}

}  // namespace

Result<std::string> tar_member(const ArchivedFile& file, std::int64_t modified_s) {
  TarHeader header{};
  if (!put_name(header, file.name)) {
    return fail(Errc::invalid_argument, "its name is too long for an archive, or empty");
  }
  put(header.mode, "0000600");
  put(header.uid, "0000000");
  put(header.gid, "0000000");
  put(header.size, fmt::format("{:011o}", file.text.size()));
  put(header.modified, fmt::format("{:011o}", modified_s));
  put(header.checksum, "        ");
  header.type = '0';
  put(header.magic, std::string_view("ustar\0", 6));
  put(header.version, "00");
  std::array<unsigned char, kRecord> bytes;
  std::memcpy(bytes.data(), &header, kRecord);
  put(header.checksum, fmt::format("{:06o}", std::accumulate(bytes.begin(), bytes.end(), 0u)));
  header.checksum[6] = '\0';
  std::string member(kRecord, '\0');
  std::memcpy(member.data(), &header, kRecord);
  member += file.text;
  member.resize((member.size() + kRecord - 1) / kRecord * kRecord, '\0');
  return member;
}

std::string archive_end() { return std::string(2 * kRecord, '\0'); }

Result<std::string> gzipped(std::string_view bytes) {
  constexpr int kGzip = 15 + 16;  // the largest window, and gzip's header
  z_stream stream{};
  if (bytes.size() > std::numeric_limits<uInt>::max() ||
      ::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) !=
          Z_OK) {
    return fail(Errc::out_of_memory, "there is no room to compress the archive");
  }
  std::string packed(::deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  std::string input(bytes);  // zlib's field is not const
  const auto bytes_of = [](std::string& text) {
    return static_cast<Bytef*>(static_cast<void*>(text.data()));
  };
  stream.next_in = bytes_of(input);
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = bytes_of(packed);
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = ::deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  if (result != Z_STREAM_END) return fail(Errc::internal, "the archive could not be compressed");
  return packed;
}

}  // namespace tern::ctl
