#include "cuda/chunk_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tern::cuda {
namespace chunk_map_test {

tern_block_layout layout_of_three_chunks() {
  tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
  layout.count = 2500;
  layout.chunk_elements = 1024;
  layout.chunks = 3;
  layout.slot_bytes = 4160;
  layout.nodes = 2;
  layout.node = 1;
  layout.first_owner = 0;
  return layout;
}

TEST(ChunkMap, ContributedChunksHaveResidualsBesideEachOther) {
  const auto map = ChunkMap::of(layout_of_three_chunks());
  ASSERT_TRUE(map.has_value());
  const auto chunks = map->chunks();
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_TRUE(chunks[0].contributed);
  EXPECT_FALSE(chunks[1].contributed);
  EXPECT_TRUE(chunks[2].contributed);
  EXPECT_EQ(chunks[2].begin, 2048u);
  EXPECT_EQ(chunks[2].slot, 2u * 4160u);
  EXPECT_EQ(chunks[2].elements, 452u);
  EXPECT_EQ(chunks[2].residual, 1024u);
  EXPECT_EQ(map->contributed_chunks(), 2u);
  EXPECT_EQ(map->contributed_elements(), 1476u);
  EXPECT_EQ(map->bytes(), 3u * 4160u);
  EXPECT_EQ(map->most_elements(), 1024u);
}

TEST(ChunkMap, NobodyOwnsWhatTravelsWhole) {
  tern_block_layout layout = layout_of_three_chunks();
  layout.travels_whole = 1;
  layout.count = layout.chunk_elements = 1000;
  layout.chunks = 1;
  layout.first_owner = 1;
  const auto map = ChunkMap::of(layout);
  ASSERT_TRUE(map.has_value());
  EXPECT_EQ(map->contributed_elements(), 1000u);
}

TEST(ChunkMap, SlotsOfAnotherTypeAreRefused) {
  tern_block_layout layout = layout_of_three_chunks();
  layout.slot_bytes = 2112;
  EXPECT_FALSE(ChunkMap::of(layout).has_value());
}

TEST(ChunkMap, ChunksThatKernelsCannotReadAreRefused) {
  tern_block_layout layout = layout_of_three_chunks();
  layout.chunk_elements = 1022;
  const auto map = ChunkMap::of(layout);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, Errc::unsupported);
  EXPECT_THAT(map.error().text, testing::HasSubstr("a multiple of 16"));
}

}  // namespace chunk_map_test
}  // namespace tern::cuda
