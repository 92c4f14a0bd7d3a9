// Parts of operations with one leg: residuals of elements, and the counts of shares.

#include <gtest/gtest.h>

#include <array>

#include "daemon/tensor/memory_use.h"
#include "state_nodes.h"
#include "wire/crc32c.h"

namespace tern::daemon::state_part_test {
namespace {

const std::vector<std::uint64_t> kShareBegins = {0, 3, 3, 10};

// Of the three ranks' counts, as ops announce it.
std::uint32_t counts_crc() {
  const std::vector<std::uint64_t> counts = {3, 0, 7};
  return wire::crc32c(std::as_bytes(std::span(counts)));
}

OneLegUse with_counts() {
  return {.kind = 6, .counts_crc = counts_crc(), .placement = 44, .ranks = 3};
}
constexpr OneLegUse kReduce{.kind = 5, .placement = 44, .root = 2, .ranks = 3};

Node node_of(const OneLegUse& use, std::uint32_t self = 0, const Layout& layout = {}) {
  Node node(layout, self);
  node.part.belong_to(use);
  node.set_residuals(static_cast<float>(1000 * (self + 1)));
  return node;
}

// With its counts, if it has any.
Bytes exported(const Node& node) {
  Bytes bytes = room_for(node.part);
  node.part.export_elements(node.state, {0, node.layout.count}, bytes);
  node.part.write_counts(kShareBegins, bytes);
  return bytes;
}

struct OfOneLeg : testing::Test {
  Errc check(const StatePart& part, const Bytes& parts) {
    const Result<void> checked = part.check(parts, same_layout, own);
    text = checked ? "" : checked.error().text;
    return checked ? Errc::ok : checked.error().code;
  }

  bool same_layout = false;
  std::uint64_t own = 0;
  std::string text;
};

using StatePartOfOneLeg = OfOneLeg;

TEST_F(StatePartOfOneLeg, SaysWhichOperationItIsOf) {
  const StatePart reduce = node_of(kReduce).part;
  EXPECT_EQ(reduce.header().kind, 5);
  EXPECT_EQ(reduce.header().root, 3) << "the rank plus 1";
  EXPECT_EQ(reduce.header().placement, 44u);
  EXPECT_EQ(reduce.bytes(), Layout{}.part(0).bytes()) << "it has no counts";
  const StatePart shares = node_of(with_counts()).part;
  EXPECT_EQ(shares.header().root, 0);
  EXPECT_EQ(shares.header().counts_crc, counts_crc());
  EXPECT_EQ(shares.bytes(), reduce.bytes() + 3 * sizeof(std::uint64_t));
  // Who owns a chunk does not matter to it.
  EXPECT_EQ(node_of(kReduce, 0, {.eager = true}).part.header().version, 1);
}

TEST_F(StatePartOfOneLeg, OfNoOperationItIsAsItWas) {
  StatePart part = Layout{.eager = true}.part(0);
  const StatePartHeader before = part.header();
  part.belong_to({.placement = 44, .ranks = 3});
  EXPECT_EQ(std::memcmp(&part.header(), &before, sizeof before), 0);
}

TEST_F(StatePartOfOneLeg, ElementsComeBackWhereTheyWere) {
  const Node from = node_of(with_counts());
  Bytes bytes = room_for(from.part);
  from.part.export_elements(from.state, {3, 7}, bytes);
  Node to({}, 0);
  to.part.belong_to(with_counts());
  ASSERT_TRUE(to.part.import_elements(to.state, {2, 4}, bytes));
  EXPECT_EQ(to.residuals(), (std::vector<float>{0, 0, 0, 1003, 1004, 1005, 0, 0, 0, 0}));
}

// Residuals are of elements, wherever their chunks were cut.
TEST_F(StatePartOfOneLeg, OtherChunksAreTheSameLayout) {
  const Bytes bytes = exported(node_of(with_counts(), 1, {.spread = 1}));
  const Node other = node_of(with_counts(), 1, {.chunk_elements = 7});
  EXPECT_EQ(check(other.part, bytes), Errc::ok) << text;
  EXPECT_TRUE(same_layout);
  EXPECT_EQ(own, 0u);
}

TEST_F(StatePartOfOneLeg, RanksOnOtherNodesAreAnotherLayout) {
  OneLegUse moved = with_counts();
  moved.placement = 45;
  const Bytes both =
      joined({exported(node_of(with_counts())), exported(node_of(with_counts(), 1))});
  EXPECT_EQ(check(node_of(moved).part, both), Errc::ok) << text;
  EXPECT_FALSE(same_layout);
}

TEST_F(StatePartOfOneLeg, PartsOfAnotherOperationAreRefused) {
  const StatePart part = node_of(with_counts()).part;
  OneLegUse other = with_counts();
  other.counts_crc += 1;
  for (const OneLegUse& use : {kReduce, other, OneLegUse{}}) {
    EXPECT_EQ(check(part, exported(node_of(use))), Errc::state_mismatch);
    EXPECT_NE(text.find("another kind of operation"), std::string::npos) << text;
  }
  EXPECT_EQ(check(Layout{}.part(0), exported(node_of(with_counts()))), Errc::state_mismatch);
}

TEST_F(StatePartOfOneLeg, AnotherNumberOfRanksIsRefused) {
  OneLegUse larger = with_counts();
  larger.ranks = 4;
  EXPECT_EQ(check(node_of(larger).part, exported(node_of(with_counts()))), Errc::state_mismatch);
  EXPECT_NE(text.find("another number of ranks than 4"), std::string::npos) << text;
}

// As that of a reduce's root, which encodes nothing.
TEST_F(StatePartOfOneLeg, APartOfNoOperationMayStandBesideOthers) {
  const Node none = node_of({}), one = node_of(with_counts(), 1);
  const Bytes parts = joined({exported(none), exported(one)});
  EXPECT_EQ(check(one.part, parts), Errc::ok) << text;
  EXPECT_TRUE(same_layout);
  EXPECT_EQ(own, none.part.bytes());
  EXPECT_EQ(check(node_of(with_counts()).part, parts), Errc::ok) << text;
  EXPECT_TRUE(same_layout) << "its own part is of no operation";
  EXPECT_EQ(own, 0u);
}

TEST_F(StatePartOfOneLeg, TheFirstPartOfAnOperationIsFound) {
  const Bytes none = exported(node_of({})), one = exported(node_of(with_counts(), 1));
  EXPECT_EQ(StatePart::first_of_one_leg(joined({none, one})).kind, 6);
  EXPECT_EQ(StatePart::first_of_one_leg(joined({one, none})).node, 1u);
  EXPECT_EQ(StatePart::first_of_one_leg(none).magic, 0u);
  EXPECT_EQ(StatePart::first_of_one_leg(Bytes(10)).magic, 0u);
}

// However many a client writes: a group has as many as it has nodes.
TEST_F(StatePartOfOneLeg, CountsAreSoughtInSixtyFourParts) {
  const Node one = node_of(with_counts(), 1);
  std::vector<Bytes> parts(63, exported(node_of({})));
  parts.push_back(exported(one));
  EXPECT_TRUE(one.part.read_counts(joined(parts)));
  parts.insert(parts.begin(), parts.front());
  EXPECT_FALSE(one.part.read_counts(joined(parts)));
}

TEST_F(StatePartOfOneLeg, WhatNodesOweIsWhosItIsNow) {
  const Bytes parts =
      joined({exported(node_of(with_counts())), exported(node_of(with_counts(), 1))});
  Node node = node_of(with_counts());
  ASSERT_TRUE(node.part.refold_elements(node.state, {0, 4}, parts, true));
  ASSERT_TRUE(node.part.refold_elements(node.state, {4, 5}, parts, false));
  EXPECT_EQ(node.residuals(), (std::vector<float>{3000, 3002, 3004, 3006, 0, 0, 0, 0, 0, 1009}));
}

TEST_F(StatePartOfOneLeg, CountsComeBack) {
  const Node node = node_of(with_counts());
  const auto begins = node.part.read_counts(exported(node));
  ASSERT_TRUE(begins) << begins.error().text;
  EXPECT_EQ(*begins, kShareBegins);
  const auto behind = node.part.read_counts(joined({exported(node_of({}, 1)), exported(node)}));
  ASSERT_TRUE(behind) << behind.error().text;
  EXPECT_EQ(*behind, kShareBegins) << "parts of no operation have none";
  const Node reduce = node_of(kReduce);
  const auto none = reduce.part.read_counts(exported(reduce));
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
}

TEST_F(StatePartOfOneLeg, CountsThatChangedAreRefused) {
  const Node node = node_of(with_counts());
  const auto expect_refused = [&node](const Bytes& bytes, const char* reason) {
    const auto begins = node.part.read_counts(bytes);
    ASSERT_FALSE(begins);
    EXPECT_EQ(begins.error().code, Errc::invalid_argument);
    EXPECT_NE(begins.error().text.find(reason), std::string::npos) << begins.error().text;
  };
  // They are as many as before, and others.
  Bytes other = exported(node);
  const std::array<std::uint64_t, 3> counts = {3, 1, 6};
  std::memcpy(other.data() + other.size() - sizeof counts, counts.data(), sizeof counts);
  expect_refused(other, "are not those that its header names");
  expect_refused(exported(node_of({})), "no part has the counts");
}

// Their checksum is right, and they are not those of the tensor.
TEST_F(StatePartOfOneLeg, CountsMustAddUp) {
  for (const std::vector<std::uint64_t>& counts :
       {std::vector<std::uint64_t>{3, 0, 6}, std::vector<std::uint64_t>{11, 0, 0},
        std::vector<std::uint64_t>{~std::uint64_t{0}, 1, 10}}) {
    OneLegUse use = with_counts();
    use.counts_crc = wire::crc32c(std::as_bytes(std::span(counts)));
    const Node node = node_of(use);
    Bytes bytes = exported(node);
    std::memcpy(bytes.data() + bytes.size() - 24, counts.data(), 24);
    EXPECT_FALSE(node.part.read_counts(bytes));
  }
}

}  // namespace
}  // namespace tern::daemon::state_part_test
