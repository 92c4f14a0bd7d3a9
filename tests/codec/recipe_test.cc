#include "codec/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tern::codec {
namespace recipe_test {

using testing::HasSubstr;

Recipe parsed(std::string_view text) {
  const auto recipe = parse_recipe(text);
  EXPECT_TRUE(recipe.has_value()) << text << "\n" << (recipe ? "" : recipe.error().text);
  Recipe quick;
  EXPECT_TRUE(parse_recipe_quick(text, quick)) << text;
  if (recipe) {
    EXPECT_EQ(*recipe, quick);
  }
  return recipe.value_or(Recipe{});
}

TEST(Recipe, ShortFormsMeanTheirLongForms) {
  EXPECT_EQ(parsed("3lc:s=1"), parsed("ef(3lc:s=1,scale=4096)"));
  EXPECT_EQ(parsed("3lc"), parsed("ef(3lc:s=1,scale=4096)"));
  EXPECT_EQ(parsed("raw"), parsed("none(raw)"));
  EXPECT_EQ(parsed("bf16"), parsed("none(bf16)"));
  EXPECT_EQ(parsed("3lc:layout=tile,zrun=on,pad=1"), parsed("3lc"));
}

TEST(Recipe, FieldsAreRead) {
  const Recipe recipe = parsed("none(3lc:scale=tensor,s=1.75,layout=paper,zrun=off,pad=0)");
  EXPECT_EQ(recipe.memory, Memory::none);
  EXPECT_EQ(recipe.compressor, Compressor::threelc);
  EXPECT_EQ(recipe.s, 1.75f);
  EXPECT_EQ(recipe.scale_elements, 0u);
  EXPECT_EQ(recipe.layout, Layout::paper);
  EXPECT_FALSE(recipe.zero_run);
  EXPECT_EQ(recipe.pad_digit, 0);
}

TEST(Recipe, AutoIsRawForNow) {
  const Recipe recipe = parsed("auto");
  EXPECT_TRUE(recipe.automatic);
  EXPECT_EQ(recipe.compressor, Compressor::raw);
  EXPECT_FALSE(is_lossy(recipe));
  EXPECT_EQ(canonical_text(recipe), "auto");
}

TEST(Recipe, LossyAndMemory) {
  EXPECT_FALSE(is_lossy(parsed("raw")));
  EXPECT_TRUE(is_lossy(parsed("bf16")));
  EXPECT_TRUE(is_lossy(parsed("3lc")));
  EXPECT_TRUE(needs_residual(parsed("3lc")));
  EXPECT_FALSE(needs_residual(parsed("none(3lc)")));
}

TEST(Recipe, CanonicalTextRoundTrips) {
  for (const char* const text : {"auto",
                                 "none(raw)",
                                 "none(bf16)",
                                 "ef(bf16)",
                                 "ef(3lc:s=1,scale=4096)",
                                 "none(3lc:s=1.75,scale=tensor)",
                                 "ef(3lc:s=1.9,scale=64,layout=paper,zrun=off,pad=0)",
                                 "none(fp16)",
                                 "ef(fp8:format=e5m2)",
                                 "ef(fp8:format=e4m3,block=64)",
                                 "ef(mxfp8:format=e4m3)",
                                 "none(mxfp4)",
                                 "ef(int:bits=8)",
                                 "diana(int:bits=3,block=512,round=stochastic)",
                                 "none(qsgd:levels=4)",
                                 "diana(qsgd:levels=15,norm=2,block=128)",
                                 "none(terngrad:clip=2.5)",
                                 "ef(terngrad)",
                                 "diana:alpha=0.5(natural)",
                                 "ef(onebit:block=64)",
                                 "ef(bitmask:keep=7,round=off)",
                                 "ef(lloyd:bits=4+huffman)",
                                 "ef(lloyd:bits=4+huffman:book=mnist-4)",
                                 "diana(randk:p=0.25+qsgd:levels=4+zrun)",
                                 "ef(topk:p=0.01)",
                                 "ef21(topk:k=100,exact=on)",
                                 "none(blocksparse:p=0.1)",
                                 "ef(blocksparse:k=3,block=1024+3lc:s=1,scale=64)",
                                 "ef(3lc:s=1,scale=4096+huffman)",
                                 "none(raw+zstd)",
                                 "ef(int:bits=4+gzip)",
                                 "ef(int:bits=4+lz4)",
                                 "none(lossless)",
                                 "none(xordelta)"}) {
    EXPECT_EQ(canonical_text(parsed(text)), text);
  }
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> factor(1.0f, 1.9999f);
  for (int i = 0; i < 2000; ++i) {
    Recipe recipe = parsed("3lc");
    recipe.s = factor(engine);
    EXPECT_EQ(parsed(canonical_text(recipe)), recipe);
  }
}

void expect_error(std::string_view text, std::size_t column, std::string_view reason,
                  std::string_view allowed) {
  Recipe untouched;
  untouched.s = 1.5f;
  EXPECT_FALSE(parse_recipe_quick(text, untouched)) << text;
  EXPECT_EQ(untouched.s, 1.5f);
  const auto recipe = parse_recipe(text);
  ASSERT_FALSE(recipe.has_value()) << text;
  EXPECT_EQ(recipe.error().code, Errc::bad_recipe);
  EXPECT_THAT(recipe.error().text, HasSubstr("^ column " + std::to_string(column)));
  EXPECT_THAT(recipe.error().text, HasSubstr(std::string(reason)));
  EXPECT_THAT(recipe.error().text, HasSubstr(std::string(allowed)));
}

TEST(Recipe, ErrorsPointAtThePlaceAndSayWhatIsAllowed) {
  expect_error("", 1, "a compressor is missing", "auto, none(...)");
  expect_error("3lx", 1, "no such compressor", "3lc");
  expect_error("3lc:s=2", 7, "at least 1 and less than 2", "1 <= s < 2");
  expect_error("3lc:s=0.5", 7, "at least 1", "1 <= s < 2");
  expect_error("3lc:s=x", 7, "no number", "1 <= s < 2");
  expect_error("3lc:s=1.5.5", 7, "no number", "1 <= s < 2");
  expect_error("3lc:s=nan", 7, "at least 1", "1 <= s < 2");
  expect_error("3lc:s", 6, "value is missing", "=value");
  expect_error("3lc:", 5, "no such parameter", "scale=tensor");
  expect_error("3lc:s=1,q=4", 9, "no such parameter", "s=1..2");
  expect_error("3lc:s=1,s=1", 9, "twice", "nothing");
  expect_error("3lc:scale=100", 11, "whole runs of 64", "multiple of 64");
  expect_error("3lc:scale=0", 11, "whole runs of 64", "tensor");
  expect_error("3lc:scale=99999999999999", 11, "no count", "tensor");
  expect_error("3lc:layout=diagonal", 12, "no such layout", "tile or paper");
  expect_error("3lc:zrun=maybe", 10, "switch", "on or off");
  expect_error("3lc:pad=2", 9, "pad digit", "0 or 1");
  expect_error("raw:s=1", 4, "no parameters", "nothing");
  expect_error("raw+3lc", 5, "order is sparsifier", "huffman");
  expect_error("ef", 3, "compressor is missing", "(compressor)");
  expect_error("ef:a=1(raw)", 3, "no parameters", "(compressor)");
  expect_error("diana:alpha=2(natural)", 13, "at most 1", "0 < alpha <= 1");
  expect_error("diana:beta=1(natural)", 7, "no such parameter", "alpha=0..1");
  expect_error("int:bits=9", 10, "out of range", "2 to 8");
  expect_error("ef(int:bits=4+int:bits=4)", 15, "order is sparsifier", "huffman");
  expect_error("ef(huffman)", 4, "needs something before", "topk");
  expect_error("ef(int:bits=4+topk:p=0.1)", 15, "order is sparsifier", "zrun");
  expect_error("none(lossless+zstd)", 15, "stands alone", "the end");
  expect_error("topk:p=0", 8, "more than 0", "0 < p <= 1");
  expect_error("huffman", 1, "needs something before", "auto");
  expect_error("ef(int:bits=4+huffman:book=)", 28, "no name", "codebook");
  expect_error("ef(int:block=100)", 14, "whole runs of 64", "multiple of 64");
  expect_error("ef(3lc", 7, "not closed", ")");
  expect_error("ef(raw)", 4, "raw drops nothing", "none(raw)");
  expect_error("raw ", 4, "nothing may follow", "the end");
  expect_error("ef(3lc))", 8, "nothing may follow", "the end");
  expect_error("auto(raw)", 5, "nothing may follow", "the end");
}

TEST(Recipe, WhatMakesNoSenseIsRefusedWithTheReason) {
  expect_error("diana(3lc)", 7, "diana needs an unbiased compressor", "randk");
  expect_error("diana(topk:p=0.1)", 7, "diana needs an unbiased compressor", "natural");
  expect_error("diana(terngrad:clip=2.5)", 7, "diana needs an unbiased compressor", "qsgd");
  expect_error("diana(int:bits=8)", 7, "diana needs an unbiased compressor", "round=stochastic");
  expect_error("ef(lossless)", 4, "drops nothing", "none(lossless)");
  expect_error("ef21(xordelta)", 6, "drops nothing", "none(xordelta)");
  expect_error("3lc+zrun", 1, "zero-run stage of its own", "3lc:zrun=on");
  expect_error("ef21(3lc:scale=tensor)", 6, "whole tensor", "alone");
  expect_error("topk:p=0.1+3lc:scale=tensor", 1, "whole tensor", "alone");
}

TEST(Recipe, AnUnwrappedRecipeGetsTheMemoryItNeeds) {
  EXPECT_EQ(parsed("topk:p=0.01").memory, Memory::ef);
  EXPECT_EQ(parsed("onebit").memory, Memory::ef);
  EXPECT_EQ(parsed("int:bits=4").memory, Memory::ef);
  EXPECT_EQ(parsed("int:bits=4,round=stochastic").memory, Memory::none);
  EXPECT_EQ(parsed("qsgd").memory, Memory::none);
  EXPECT_EQ(parsed("randk:p=0.1+natural").memory, Memory::none);
  EXPECT_EQ(parsed("terngrad:clip=2.5").memory, Memory::ef);
  EXPECT_EQ(parsed("fp16").memory, Memory::none);
  EXPECT_EQ(parsed("lossless").memory, Memory::none);
}

TEST(Recipe, HostileTextIsBoundedAndPrintable) {
  const std::string hostile = "3lc:\x1b[31m" + std::string(100000, '(');
  const auto recipe = parse_recipe(hostile);
  ASSERT_FALSE(recipe.has_value());
  EXPECT_LT(recipe.error().text.size(), 1000u);
  EXPECT_EQ(recipe.error().text.find('\x1b'), std::string::npos);
}

}  // namespace recipe_test
}  // namespace tern::codec
