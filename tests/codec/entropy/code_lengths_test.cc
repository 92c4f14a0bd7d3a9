#include "codec/entropy/code_lengths.h"

#include <cmath>

#include "codec/entropy/huffman_tables.h"
#include "entropy_harness.h"

namespace tern::codec::entropy {
namespace code_lengths_test {

constexpr std::array<std::uint64_t, 6> kTextbook = {45, 13, 12, 16, 9, 5};

Histogram histogram_of(std::span<const std::uint64_t> counts) {
  Histogram histogram{};
  std::copy(counts.begin(), counts.end(), histogram.begin());
  return histogram;
}

double mean_bits(const Histogram& histogram, const CodeLengths& lengths) {
  double bits = 0;
  double sum = 0;
  for (std::size_t i = 0; i < kSymbols; ++i) {
    bits += static_cast<double>(histogram[i]) * lengths[i];
    sum += static_cast<double>(histogram[i]);
  }
  return bits / sum;
}

double entropy_bits(const Histogram& histogram) {
  double sum = 0;
  for (const std::uint64_t count : histogram) sum += static_cast<double>(count);
  double entropy = 0;
  for (const std::uint64_t count : histogram) {
    const double p = static_cast<double>(count) / sum;
    if (count != 0) entropy -= p * std::log2(p);
  }
  return entropy;
}

TEST(CodeLengths, TextbookFrequenciesGiveTextbookCode) {
  const Histogram histogram = histogram_of(kTextbook);
  const CodeLengths lengths = code_lengths(histogram);
  const std::vector<int> first(lengths.begin(), lengths.begin() + 6);
  EXPECT_EQ(first, (std::vector<int>{1, 3, 3, 3, 4, 4}));
  EXPECT_DOUBLE_EQ(mean_bits(histogram, lengths), 2.24);
  EXPECT_NEAR(entropy_bits(histogram), 2.219880, 1e-6);
  const Codes codes = canonical_codes(lengths);
  const std::vector<int> values(codes.begin(), codes.begin() + 6);
  EXPECT_EQ(values, (std::vector<int>{0b0, 0b100, 0b101, 0b110, 0b1110, 0b1111}));
}

TEST(CodeLengths, FibonacciWeightsAreLimited) {
  Histogram histogram{};
  histogram[0] = histogram[1] = 1;
  for (std::size_t i = 2; i < 20; ++i) histogram[i] = histogram[i - 1] + histogram[i - 2];
  const CodeLengths deep = code_lengths(histogram, 20);
  EXPECT_EQ(*std::max_element(deep.begin(), deep.end()), 19);
  const CodeLengths limited = code_lengths(histogram);
  EXPECT_EQ(*std::max_element(limited.begin(), limited.end()), 11);
  EXPECT_EQ(kraft_sum(limited), kKraftOne);
  EXPECT_LT(mean_bits(histogram, limited), mean_bits(histogram, deep) + 0.02);
}

// Every choice of lengths for five symbols and a limit of three bits.
TEST(CodeLengths, LimitedLengthsAreTheBestOnes) {
  std::mt19937_64 engine(5);
  for (int trial = 0; trial < 200; ++trial) {
    Histogram histogram{};
    for (std::size_t i = 0; i < 5; ++i) histogram[i] = 1 + engine() % (1u << (engine() % 10));
    double best = 1e9;
    for (int choice = 0; choice < 243; ++choice) {
      CodeLengths lengths{};
      int kraft = 0;
      for (int i = 0, rest = choice; i < 5; ++i, rest /= 3) {
        lengths[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(rest % 3 + 1);
        kraft += 8 >> (rest % 3 + 1);
      }
      if (kraft <= 8) best = std::min(best, mean_bits(histogram, lengths));
    }
    EXPECT_DOUBLE_EQ(mean_bits(histogram, code_lengths(histogram, 3)), best);
  }
}

TEST(CodeLengths, RandomHistogramsGiveCompleteCodesNearEntropy) {
  std::mt19937_64 engine(6);
  for (int trial = 0; trial < 300; ++trial) {
    Histogram histogram{};
    const std::size_t symbols = 2 + engine() % 255;
    for (std::size_t i = 0; i < symbols; ++i) {
      histogram[engine() % kSymbols] = 1 + engine() % (std::uint64_t{1} << (engine() % 9));
    }
    histogram[0] = histogram[255] = 3;
    const CodeLengths lengths = code_lengths(histogram);
    EXPECT_EQ(kraft_sum(lengths), kKraftOne);
    EXPECT_GE(mean_bits(histogram, lengths), entropy_bits(histogram) - 1e-9);
    EXPECT_LT(mean_bits(histogram, lengths), entropy_bits(histogram) + 1);
  }
}

TEST(CodeLengths, OneSymbolHasOneBitAndNoneHasNone) {
  Histogram histogram{};
  EXPECT_EQ(kraft_sum(code_lengths(histogram)), 0u);
  histogram[200] = 1000;
  EXPECT_EQ(code_lengths(histogram)[200], 1);
  EXPECT_EQ(kraft_sum(code_lengths(histogram)), kKraftOne / 2);
}

TEST(CodeLengths, TooLongALengthIsNoCode) {
  CodeLengths lengths{};
  lengths[0] = 12;
  EXPECT_GT(kraft_sum(lengths), kKraftOne);
}

TEST(HuffmanTables, EntriesHoldWholeSymbolsOnly) {
  const CodeLengths lengths = code_lengths(histogram_of(kTextbook));
  auto smaller = std::make_unique<SmallerTables>();
  auto table = std::make_unique<DecodeTable>();
  make_decode_table(lengths, *smaller, *table);
  EXPECT_EQ(table->entries[0], 0x0600'0000'0000'0006u);  // six of the eleven zeros
  // 100 101 110 11: symbols 1 2 3 in nine bits, and two bits of the next.
  EXPECT_EQ(table->entries[0b10010111011], 0x0300'0000'0302'0109u);
}

}  // namespace code_lengths_test
}  // namespace tern::codec::entropy
