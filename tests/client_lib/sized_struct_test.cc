// Programs and libraries of unlike versions. Later structs are made up here: a longer one, of which
// this library knows the beginning, and one that has grown since a program was compiled.

#include "client_lib/sized_struct.h"

#include <gtest/gtest.h>

#include "fixture.h"

namespace tern::client_lib {

// A struct of 16 bytes in its first header, with a field behind it since.
struct Grown {
  std::uint32_t struct_size;
  std::uint32_t flags;
  std::uint64_t count;
  std::uint64_t added;
};
}  // namespace tern::client_lib

template <>
inline constexpr std::size_t tern::kFirstBytes<tern::client_lib::Grown> = 16;

namespace tern::client_lib {
namespace {

// What a program of a later tern.h passes: this version's struct, and a field behind it.
template <typename Struct>
struct Later {
  Struct known;
  std::uint64_t added;
};

template <typename Struct>
Later<Struct> later(Struct known, std::uint64_t added) {
  known.struct_size = sizeof(Later<Struct>);
  return {known, added};
}

TEST(SizedStruct, AFieldThatTheProgramDoesNotHaveIsZero) {
  Grown passed{16, 7, 8, ~std::uint64_t{0}}, known{};
  ASSERT_EQ(read_struct(&passed, "grown", known), TERN_OK);
  EXPECT_EQ(known.flags, 7u);
  EXPECT_EQ(known.count, 8u);
  EXPECT_EQ(known.added, 0u);
}

TEST(SizedStruct, NothingIsWrittenBehindWhatTheProgramHas) {
  Grown taken{16, 0, 0, 99};
  write_struct(Grown{0, 7, 8, 5}, &taken);
  EXPECT_EQ(taken.struct_size, 16u);
  EXPECT_EQ(taken.flags, 7u);
  EXPECT_EQ(taken.count, 8u);
  EXPECT_EQ(taken.added, 99u);
}

TEST(SizedStruct, SizesOfNoHeaderAreRefused) {
  for (const std::uint32_t size : {0u, 4u, 15u, 4097u, ~0u}) {
    const Grown passed{size, 0, 0, 0};
    Grown known{};
    EXPECT_EQ(read_struct(&passed, "grown", known), TERN_ERR_INVALID_ARGUMENT) << size;
  }
}

class LaterProgram : public tern::testing::ClientTest {};

TEST_F(LaterProgram, IsServedWhereItUsesNoNewField) {
  float values[4] = {1, 2, 3, 4};
  auto op = later(f32_op(values, values, 4), 0);
  tern_ticket ticket = 0;
  ASSERT_TERN_OK(tern_all_reduce(group, &op.known, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
}

TEST_F(LaterProgram, IsToldThatAFieldIsNotKnownHere) {
  float values[4] = {1, 2, 3, 4};
  auto op = later(f32_op(values, values, 4), 1);
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_all_reduce(group, &op.known, &ticket), TERN_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(tern_error_detail()).find("does not know"), std::string::npos);
  const tern_connect_options connect = TERN_CONNECT_OPTIONS_INIT;
  const auto connect_later = later(connect, 1);
  tern_client* other = nullptr;
  EXPECT_EQ(tern_connect(&connect_later.known, &other), TERN_ERR_UNSUPPORTED);
}

TEST_F(LaterProgram, GetsZeroInFieldsThatAreNotKnownHere) {
  const tern_group_info none = TERN_GROUP_INFO_INIT;
  auto info = later(none, 99);
  ASSERT_TERN_OK(tern_group_get_info(group, &info.known));
  EXPECT_EQ(info.known.size, 1);
  EXPECT_EQ(info.known.struct_size, sizeof info);
  EXPECT_EQ(info.added, 0u);
}

}  // namespace
}  // namespace tern::client_lib
