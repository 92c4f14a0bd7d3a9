// The blocks of version 1, as they were written once. Files are only ever added.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>

#include "codec_harness.h"

namespace tern::codec {
namespace golden_block_test {

std::vector<std::byte> read_hex(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::byte> bytes;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      bytes.push_back(static_cast<std::byte>(std::stoul(line.substr(i, 2), nullptr, 16)));
    }
  }
  return bytes;
}

// The recipe that makes of decoded values the same block again: s=1, because M is their maximum.
Recipe recipe_for(const wire::BlockHeader& header) {
  Recipe recipe;
  recipe.compressor = static_cast<Compressor>(header.codec);
  recipe.layout = (header.flags & wire::kBlockPaperLayout) != 0 ? Layout::paper : Layout::tile;
  recipe.pad_digit = (header.flags & wire::kBlockPadZero) != 0 ? 0 : 1;
  recipe.zero_run = (header.flags & wire::kBlockZeroRun) != 0;
  recipe.scale_elements = header.scale_elements;
  return recipe;
}

TEST(GoldenBlock, EveryFileDecodesAndEncodesByteForByte) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TERN_GOLDEN_BLOCKS)) {
    if (!entry.is_regular_file()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++files;
    const auto bytes = read_hex(entry.path());
    wire::BlockHeader header;
    ASSERT_EQ(wire::parse_block_header(bytes, header), wire::BlockError::none);
    const auto payload = std::span(bytes).subspan(wire::kBlockHeaderBytes);
    ASSERT_EQ(payload.size(), header.payload_bytes);

    std::array<std::byte, wire::kBlockHeaderBytes> rewritten{};
    wire::write_block_header(header, rewritten);
    EXPECT_TRUE(std::equal(rewritten.begin(), rewritten.end(), bytes.begin()));

    const bool raw = header.codec == static_cast<std::uint8_t>(wire::CodecId::raw);
    if (raw && header.dtype != static_cast<std::uint8_t>(DType::f32)) continue;
    for (const std::string& target : target_names()) {
      const ForcedTarget forced(target);
      std::vector<float> values(header.elements);
      ASSERT_EQ(decode({header, payload}, values, workspace()), DecodeStatus::ok);
      std::vector<float> none;
      EncodeRequest request;
      request.stream_step = header.stream_step;
      request.fixed_scale_max = scan_max(values, nullptr, 1.0f).max;
      const auto block = encode_block(recipe_for(header), values, none, request);
      EXPECT_EQ(block.header, header);
      EXPECT_TRUE(
          std::equal(payload.begin(), payload.end(), block.payload.begin(), block.payload.end()));
    }
  }
  EXPECT_GE(files, 10u);
}

TEST(GoldenBlock, NonfiniteRawKeepsItsBytes) {
  const auto bytes = read_hex(std::filesystem::path(TERN_GOLDEN_BLOCKS) / "raw_f16_nonfinite.hex");
  wire::BlockHeader header;
  ASSERT_EQ(wire::parse_block_header(bytes, header), wire::BlockError::none);
  EXPECT_EQ(header.flags, wire::kBlockNonfiniteRaw);
  float values[2];
  EXPECT_EQ(decode({header, std::span(bytes).subspan(32)}, values, workspace()), DecodeStatus::ok);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], std::numeric_limits<float>::infinity());
}

}  // namespace golden_block_test
}  // namespace tern::codec
