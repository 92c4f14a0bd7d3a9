#include "daemon/lane/eager_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "daemon/lane/group_bytes.h"

namespace tern::daemon {
namespace {

collective::GroupShape shape_of(std::uint32_t nodes, std::uint64_t eager_bytes) {
  collective::GroupShape shape;
  shape.eager_bytes = eager_bytes;
  shape.eager_form = collective::kNewestEagerForm;
  shape.max_ops_in_flight = 2;
  for (std::uint32_t node = 0; node < nodes; ++node) shape.ranks.push_back({node});
  return shape;
}

std::uint32_t take_all(SlabPool& pool) {
  std::uint32_t taken = 0;
  while (pool.take() != SlabPool::kNone) ++taken;
  return taken;
}

TEST(EagerRoom, AnotherNodeHasPlacesForTwiceItsOpsAndThisOneForItsOwn) {
  EagerRoom room = *EagerRoom::make(shape_of(3, 256));
  EXPECT_EQ(take_all(room.announced()[0]), 2u);
  EXPECT_EQ(take_all(room.announced()[1]), 4u);
  EXPECT_EQ(take_all(room.announced()[2]), 4u) << "whatever another node has taken";
  EXPECT_EQ(take_all(room.offered()[0]), 0u);
  EXPECT_EQ(take_all(room.offered()[1]), 32u);
}

TEST(EagerRoom, APlaceHasRoomForABlock) {
  EagerRoom room = *EagerRoom::make(shape_of(2, 256));
  EXPECT_GE(room.announced()[1].slab(3).size(), 256u + wire::kBlockHeaderBytes);
  EXPECT_GE(room.offered()[1].slab(31).size(), 256u);
}

TEST(EagerRoom, WithoutEagerOpsThereIsNone) {
  EXPECT_EQ(EagerRoom::bytes_for(shape_of(3, 0)), 0u);
  EagerRoom room = *EagerRoom::make(shape_of(3, 0));
  for (SlabPool& pool : room.announced()) EXPECT_EQ(take_all(pool), 0u);
}

TEST(EagerRoom, ItsBytesAreThoseOfAllPlaces) {
  const auto shape = shape_of(5, 16 << 10);
  EagerRoom room = *EagerRoom::make(shape);
  std::uint64_t bytes = 0;
  for (const SlabPool& pool : room.announced()) bytes += pool.region().bytes;
  for (const SlabPool& pool : room.offered()) bytes += pool.region().bytes;
  EXPECT_EQ(EagerRoom::bytes_for(shape), bytes);
}

// So much a user's groups may always have (quotas.cc).
TEST(EagerRoom, OfALargeGroupFitsTheLeastThatAUserMayHave) {
  collective::GroupShape shape = shape_of(64, collective::eager_limit(64 << 10, 64));
  shape.max_ops_in_flight = 128;
  EXPECT_LE(EagerRoom::bytes_for(shape) + group_bytes(shape), std::uint64_t{256} << 20);
}

void drop_pages(EagerRoom& room) {
  for (std::size_t pool = 0; room.drop_pages(pool);) ++pool;
}

TEST(EagerRoom, DropsThePagesOfNodesThatHaveNothingThere) {
  EagerRoom room = *EagerRoom::make(shape_of(2, 256));
  for (SlabPool* pool : {&room.announced()[1], &room.offered()[1]}) {
    const std::uint32_t slab = pool->take();
    pool->slab(slab)[0] = std::byte{1};
    drop_pages(room);
    EXPECT_EQ(pool->slab(slab)[0], std::byte{1});
    pool->give(slab);
    drop_pages(room);
    EXPECT_EQ(pool->slab(slab)[0], std::byte{0});
  }
}

TEST(EagerRoom, WithoutMemoryIsAnErrorThatSaysWhatToDo) {
  auto shape = shape_of(2, std::uint64_t{1} << 58);
  const auto room = EagerRoom::make(shape);
  ASSERT_FALSE(room);
  EXPECT_EQ(room.error().code, Errc::out_of_memory);
  EXPECT_THAT(room.error().text, testing::StartsWith("no room for small operations: cannot map "));
  EXPECT_THAT(room.error().text, testing::EndsWith("lower max_ops_in_flight or eager_bytes"));
}

TEST(EagerRoom, PlacesStayWhereTheyAreWhenItIsMoved) {
  EagerRoom first = *EagerRoom::make(shape_of(2, 256));
  const Operand operand = first.announced()[1].operand(0);
  host_bytes(operand)[0] = std::byte{5};
  EagerRoom second = std::move(first);
  EXPECT_EQ(second.announced()[1].operand(0), operand);
  EXPECT_EQ(second.announced()[1].slab(0)[0], std::byte{5});
  EXPECT_FALSE(second.unmap_some());
}

}  // namespace
}  // namespace tern::daemon
