// Golden blocks of the staged and lossless codecs, version 1: what was once written must decode to
// the same bits for ever. The files have the recipe, the block and the values, in hexadecimal.
// TERN_WRITE_GOLDEN=1 in the environment writes the files that are missing.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/half.h"
#include "codec_harness.h"
#include "golden_book.h"

namespace tern::codec {
namespace staged_golden_test {

namespace fs = std::filesystem;

// Names that do not change when the grammar grows.
struct Case {
  std::string recipe;
  DType dtype = DType::f32;  // of lossless recipes
  std::uint64_t step = 3;    // at 0 xordelta knows nothing of what was sent before
};
const std::map<std::string, Case> kGolden = {
    {"bf16_zstd", {"none(bf16+zstd)"}},
    {"raw_topk_exact", {"none(topk:k=9,exact=on)"}},
    {"raw_topk_sampled", {"none(topk:p=0.05)"}},
    {"raw_topk_bitmap", {"none(topk:p=0.3)"}},
    {"raw_randk", {"none(randk:p=0.1)"}},
    {"qsgd4_blocksparse", {"none(blocksparse:p=0.25,block=64+qsgd:levels=4)"}},
    {"fp16", {"none(fp16)"}},
    {"fp8_e4m3", {"none(fp8:format=e4m3,block=64)"}},
    {"fp8_e5m2", {"none(fp8:format=e5m2)"}},
    {"mxfp8_e4m3", {"none(mxfp8:format=e4m3)"}},
    {"mxfp8_e5m2", {"none(mxfp8:format=e5m2)"}},
    {"mxfp4", {"none(mxfp4)"}},
    {"int2", {"none(int:bits=2,block=64)"}},
    {"int3", {"none(int:bits=3)"}},
    {"int4", {"none(int:bits=4)"}},
    {"int5_stochastic", {"none(int:bits=5,round=stochastic)"}},
    {"int8", {"none(int:bits=8)"}},
    {"qsgd1", {"none(qsgd:levels=1)"}},
    {"qsgd4_two_norm", {"none(qsgd:levels=4,norm=2)"}},
    {"qsgd100", {"none(qsgd:levels=100)"}},
    {"terngrad", {"none(terngrad)"}},
    {"natural", {"none(natural)"}},
    {"onebit", {"none(onebit:block=64)"}},
    {"bitmask3", {"none(bitmask:keep=3)"}},
    {"bitmask7_truncated", {"none(bitmask:keep=7,round=off)"}},
    {"lloyd1", {"none(lloyd:bits=1)"}},
    {"lloyd3", {"none(lloyd:bits=3)"}},
    {"lloyd4_huffman", {"none(lloyd:bits=4+huffman)"}},
    {"lloyd6", {"none(lloyd:bits=6)"}},
    {"int4_huffman", {"none(int:bits=4+huffman)"}},
    {"int4_book", {"none(int:bits=4+huffman:book=golden)"}},
    {"int2_zrun", {"none(int:bits=2,block=512+zrun)"}},
    {"int8_gzip", {"none(int:bits=8+gzip)"}},
    {"int8_zstd", {"none(int:bits=8+zstd)"}},
    {"int2_lz4", {"none(int:bits=2+lz4)"}},
    {"3lc_huffman", {"none(3lc:s=1,scale=64+huffman)"}},
    {"lossless", {"none(lossless)"}},
    {"xordelta", {"none(xordelta)"}},
    {"lossless_bf16", {"none(lossless)", DType::bf16}},
    {"lossless_f16", {"none(lossless)", DType::f16}},
    {"xordelta_first", {"none(xordelta)", DType::f32, 0}},
    {"xordelta_bf16", {"none(xordelta)", DType::bf16}},
    {"xordelta_first_bf16", {"none(xordelta)", DType::bf16, 0}},
};

// The same on every machine: not by the standard library's distributions.
std::vector<float> golden_values() {
  std::vector<float> values(600);
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    float sum = -6.0f;
    for (std::uint32_t j = 0; j < 12; ++j) sum += random_unit(5, 12 * i + j);
    values[i] = sum * (i % 97 == 0 ? 4.0f : 0.5f);
  }
  return values;
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i != 0 && i % 32 == 0) text += '\n';
    text += kDigits[std::to_integer<unsigned>(bytes[i]) >> 4];
    text += kDigits[std::to_integer<unsigned>(bytes[i]) & 15];
  }
  return text + "\n";
}

std::vector<std::byte> unhex(std::string_view text) {
  std::vector<std::byte> bytes;
  int half = -1;
  for (const char c : text) {
    const std::string_view digits = "0123456789abcdef";
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos) continue;
    if (half < 0) {
      half = static_cast<int>(digit);
    } else {
      bytes.push_back(static_cast<std::byte>(half * 16 + static_cast<int>(digit)));
      half = -1;
    }
  }
  return bytes;
}

std::vector<std::byte> elements_of(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> elements(values.size() * dtype_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) {
      std::memcpy(elements.data() + 4 * i, &values[i], 4);
    } else {
      const std::uint16_t half =
          dtype == DType::f16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      std::memcpy(elements.data() + 2 * i, &half, 2);
    }
  }
  return elements;
}

// What xordelta saw before: nothing, or the same values, but for some.
std::vector<std::byte> last_elements(DType dtype, std::uint64_t step) {
  std::vector<float> values = golden_values();
  for (std::size_t i = 0; i < values.size(); i += 31) values[i] += 1.0f;
  std::vector<std::byte> elements = elements_of(values, dtype);
  if (step == 0) std::fill(elements.begin(), elements.end(), std::byte{0});
  return elements;
}

struct Golden {
  std::vector<std::byte> block, values;
};

Golden make(const Case& one) {
  const Recipe recipe = recipe_of(one.recipe);
  const auto input = golden_values();
  Golden golden;
  wire::BlockHeader header;
  std::vector<std::byte> payload(8192);
  if (is_lossless(recipe)) {
    golden.values = elements_of(input, one.dtype);
    auto last = last_elements(one.dtype, one.step);
    payload.resize(encode_lossless(recipe, {one.dtype, golden.values, last, one.step},
                                   {payload, header}, workspace()));
  } else {
    EncodeRequest request;
    request.input = input;
    request.key = 77;
    request.stream_step = one.step;
    payload.resize(encode(recipe, request, {payload, header}, workspace()).payload_bytes);
    std::vector<float> out(input.size());
    EXPECT_EQ(decode({header, payload}, out, workspace()), DecodeStatus::ok);
    golden.values = elements_of(out, DType::f32);
  }
  golden.block.resize(wire::kBlockHeaderBytes);
  wire::write_block_header(header, std::span(golden.block).first<wire::kBlockHeaderBytes>());
  golden.block.insert(golden.block.end(), payload.begin(), payload.end());
  return golden;
}

fs::path path_of(const std::string& name) {
  return fs::path(TERN_GOLDEN_BLOCKS) / "staged" / (name + ".txt");
}

Golden read(const std::string& name) {
  std::ifstream file(path_of(name));
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  const auto block = all.find("# block\n"), values = all.find("# values\n");
  EXPECT_NE(block, std::string::npos) << name;
  EXPECT_NE(values, std::string::npos) << name;
  if (values == std::string::npos) return {};
  return {unhex(all.substr(block + 8, values - block - 8)), unhex(all.substr(values + 9))};
}

TEST(StagedGolden, EveryBlockDecodesToItsValuesOnEveryTarget) {
  ASSERT_TRUE(entropy::install_codebooks({golden_book()}).has_value());
  for (const auto& [name, one] : kGolden) {
    SCOPED_TRACE(name);
    if (std::getenv("TERN_WRITE_GOLDEN") != nullptr && !fs::exists(path_of(name))) {
      const Golden made = make(one);
      fs::create_directories(path_of(name).parent_path());
      std::ofstream(path_of(name)) << "# " << one.recipe << "\n# block\n"
                                   << hex(made.block) << "# values\n"
                                   << hex(made.values);
    }
    const Golden golden = read(name);
    wire::BlockHeader header;
    ASSERT_EQ(wire::parse_block_header(golden.block, header), wire::BlockError::none);
    const auto payload = std::span(golden.block).subspan(wire::kBlockHeaderBytes);
    for (const std::string& target : target_names()) {
      const ForcedTarget forced(target);
      std::vector<std::byte> out(golden.values.size());
      if (header.codec == static_cast<std::uint8_t>(wire::CodecId::staged)) {
        std::vector<float> values(header.elements);
        ASSERT_EQ(decode({header, payload}, values, workspace()), DecodeStatus::ok);
        std::memcpy(out.data(), values.data(), out.size());
      } else {
        auto last = last_elements(one.dtype, one.step);
        ASSERT_EQ(decode_lossless({header, payload}, last, out, workspace()), DecodeStatus::ok);
      }
      EXPECT_TRUE(out == golden.values) << target;
    }
  }
}

// Libraries may compress better one day; what we write ourselves stays byte for byte.
TEST(StagedGolden, TheEncodersStillWriteThem) {
  ASSERT_TRUE(entropy::install_codebooks({golden_book()}).has_value());
  for (const auto& [name, one] : kGolden) {
    const auto kind = recipe_of(one.recipe).entropy.kind;
    if (kind == entropy::Kind::gzip || kind == entropy::Kind::zstd || kind == entropy::Kind::lz4) {
      continue;
    }
    for (const std::string& target : target_names()) {
      const ForcedTarget forced(target);
      EXPECT_TRUE(make(one).block == read(name).block) << name << " " << target;
    }
  }
}

TEST(StagedGolden, AnUnknownCodebookIsRefused) {
  const Golden golden = read("int4_book");
  ASSERT_TRUE(entropy::install_codebooks({}).has_value());
  wire::BlockHeader header;
  ASSERT_EQ(wire::parse_block_header(golden.block, header), wire::BlockError::none);
  std::vector<float> values(header.elements);
  EXPECT_EQ(decode({header, std::span(golden.block).subspan(wire::kBlockHeaderBytes)}, values,
                   workspace()),
            DecodeStatus::unknown_codebook);
}

}  // namespace staged_golden_test
}  // namespace tern::codec
