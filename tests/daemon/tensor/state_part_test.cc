#include "daemon/tensor/state_part.h"

#include <gtest/gtest.h>

#include <limits>

#include "state_nodes.h"

namespace tern::daemon::state_part_test {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// Of a chunk under shifts.
constexpr std::uint64_t record_bytes(std::uint64_t streams, std::uint64_t elements) {
  return streams * (sizeof(std::uint64_t) + elements * sizeof(float));
}

// What check() says of parts.
struct Verdict {
  Errc code = Errc::ok;
  std::string text;
  bool same_layout = false;
  std::uint64_t own = 0;
};

Verdict check(const StatePart& part, const Bytes& parts) {
  Verdict verdict;
  const Result<void> checked = part.check(parts, verdict.same_layout, verdict.own);
  if (!checked) {
    verdict.code = checked.error().code;
    verdict.text = checked.error().text;
  }
  return verdict;
}

void expect_refused(const StatePart& part, const Bytes& parts, Errc code, const char* text) {
  const Verdict verdict = check(part, parts);
  EXPECT_EQ(verdict.code, code) << verdict.text;
  EXPECT_NE(verdict.text.find(text), std::string::npos) << verdict.text;
}

// ---- What it says

TEST(StatePart, ItsHeaderSaysWhatItIsOf) {
  const Layout layout{.nodes = 3, .spread = 8, .alpha = 6.0f};
  const StatePart part = layout.part(1);
  const StatePartHeader& header = part.header();
  EXPECT_EQ(header.magic, kStatePartMagic);
  EXPECT_EQ(header.version, 1);
  EXPECT_EQ(header.memory, 1);
  EXPECT_EQ(header.dtype, static_cast<std::uint8_t>(DType::f32));
  EXPECT_EQ(header.node, 1u);
  EXPECT_EQ(header.nodes, 3u);
  EXPECT_EQ(header.count, 10u);
  EXPECT_EQ(header.chunk_elements, 4u);
  EXPECT_EQ(header.spread, 2u) << "of the nodes";
  EXPECT_EQ(std::bit_cast<float>(header.alpha_bits), 6.0f);
  EXPECT_EQ(header.bytes, part.bytes());
  EXPECT_EQ(header.kind, 0);
  EXPECT_EQ(header.root, 0);
  EXPECT_TRUE(part.has_residuals());
}

TEST(StatePart, WhatNobodyOwnsIsOfAnotherVersion) {
  const StatePart part = Layout{.eager = true}.part(0);
  EXPECT_EQ(part.header().version, 2);
  EXPECT_EQ(part.header().root, 1);
  EXPECT_EQ(part.bytes(), Layout{}.part(0).bytes());
}

TEST(StatePart, WithoutMemoryItIsAHeaderAlone) {
  for (const char* recipe : {"raw", "none(bf16)", "lossless", "xordelta"}) {
    const StatePart part = Layout{.recipe = recipe}.part(0);
    EXPECT_EQ(part.bytes(), sizeof(StatePartHeader)) << recipe;
    EXPECT_FALSE(part.has_residuals()) << recipe;
    EXPECT_TRUE(check(part, room_for(part)).same_layout) << recipe;
    EXPECT_EQ(check(part, room_for(Layout{.recipe = recipe, .nodes = 3}.part(2))).code, Errc::ok)
        << recipe << ": there is nothing to lose";
  }
}

TEST(StatePart, ErrorFeedbackIsAFloatForEachElement) {
  EXPECT_EQ(Layout{}.part(0).bytes(), sizeof(StatePartHeader) + 10 * sizeof(float));
  EXPECT_EQ((Layout{.chunk_elements = 3, .nodes = 5}.part(4).bytes()),
            sizeof(StatePartHeader) + 10 * sizeof(float));
}

// ---- Out and in

TEST(StatePart, WhatIsExportedComesBack) {
  Node from({}, 1);
  from.set_residuals(7.0f);
  const Bytes bytes = from.exported();
  const Verdict verdict = check(from.part, bytes);
  EXPECT_EQ(verdict.code, Errc::ok) << verdict.text;
  EXPECT_TRUE(verdict.same_layout);
  Node to({}, 1);
  to.import_all(bytes);
  EXPECT_EQ(to.residuals(), from.residuals());
}

TEST(StatePart, AChunkIsMovedAlone) {
  Node from({}, 1);
  from.set_residuals(7.0f);
  const Bytes bytes = from.exported();
  Node to({}, 1);
  ASSERT_TRUE(to.part.import_chunk(to.state, 1, bytes));
  EXPECT_EQ(to.residuals(), (std::vector<float>{0, 0, 0, 0, 11, 12, 13, 14, 0, 0}));
  Bytes one = room_for(to.part);
  to.part.export_chunk(to.state, 2, one);
  to.part.export_chunk(from.state, 0, one);
  Node last({}, 1);
  last.import_all(one);
  EXPECT_EQ(last.residuals(), (std::vector<float>{7, 8, 9, 10, 0, 0, 0, 0, 0, 0}));
}

// As docs/codecs.md says: counts of the sender and of who sends to this node, then their floats.
TEST(StatePart, AShiftsRecordHasCountsAndThenFloats) {
  const Layout layout{.recipe = "diana(qsgd:levels=7)", .nodes = 3, .spread = 1};
  Node node(layout, 2);  // owns chunk 1
  node.set_streams();
  const Bytes bytes = node.exported();
  EXPECT_FALSE(node.part.has_residuals());
  const std::uint64_t first = record_bytes(2, 4);
  ASSERT_GE(bytes.size(), sizeof(StatePartHeader) + first + record_bytes(3, 4));
  const std::byte* at = bytes.data() + sizeof(StatePartHeader) + first;
  std::uint64_t steps[3];
  float floats[12];
  std::memcpy(steps, at, sizeof steps);
  std::memcpy(floats, at + sizeof steps, sizeof floats);
  EXPECT_EQ(std::vector<std::uint64_t>(steps, steps + 3),
            (std::vector<std::uint64_t>{1001, 2001, 2101}));
  EXPECT_EQ(
      std::vector<float>(floats, floats + 12),
      (std::vector<float>{4.5, 5.5, 6.5, 7.5, 1004, 1005, 1006, 1007, 2004, 2005, 2006, 2007}));
}

// Every float and every count has a place of its own, and the part has no more.
TEST(StatePart, ShiftsComeBackWhateverTheLayout) {
  for (const char* recipe : {"diana(qsgd:levels=7)", "ef21(topk:p=0.1)"}) {
    for (std::uint32_t nodes = 2; nodes <= 4; ++nodes) {
      for (std::uint64_t count = 1; count <= 21; ++count) {
        const std::uint64_t spread = count % 5;
        const Layout layout{recipe, count, 4, nodes, spread};
        for (std::uint32_t self = 0; self < nodes; ++self) {
          SCOPED_TRACE(testing::Message() << recipe << ", node " << self << " of " << nodes << ", "
                                          << count << " elements");
          Node from(layout, self);
          from.set_streams();
          const auto [steps, floats] = from.streams();
          ASSERT_EQ(from.part.bytes(),
                    sizeof(StatePartHeader) + steps.size() * 8 + floats.size() * sizeof(float));
          const Bytes bytes = from.exported();
          ASSERT_TRUE(check(from.part, bytes).same_layout);
          Node to(layout, self);
          to.import_all(bytes);
          ASSERT_EQ(to.streams(), std::pair(steps, floats));
        }
      }
    }
  }
}

TEST(StatePart, WhatIsNotFiniteIsRefusedAndNothingIsTaken) {
  Node node({}, 0);
  node.set_residuals(1.0f);
  const auto before = node.residuals();
  for (const float value : {kNotANumber, std::numeric_limits<float>::infinity()}) {
    Bytes bytes = room_for(node.part);
    put_residual(bytes, 7, value);
    EXPECT_FALSE(node.part.import_chunk(node.state, 1, bytes));
    EXPECT_FALSE(node.part.import_elements(node.state, {5, 3}, bytes));
    EXPECT_EQ(node.residuals(), before);
    EXPECT_TRUE(node.part.import_chunk(node.state, 2, bytes)) << "it has none of it";
    node.set_residuals(1.0f);
  }
}

TEST(StatePart, AShiftThatIsNotFiniteIsRefusedWithItsCounts) {
  const Layout layout{.recipe = "ef21(topk:p=0.1)", .nodes = 3};
  Node node(layout, 0);
  node.set_streams();
  Bytes bytes = node.exported();
  // The last float of chunk 0, which this node owns: of the shift that node 2 sends to it.
  const std::uint64_t last = sizeof(StatePartHeader) + record_bytes(3, 4) - sizeof(float);
  std::memcpy(bytes.data() + last, &kNotANumber, sizeof kNotANumber);
  Node fresh(layout, 0);
  const auto before = fresh.streams();
  EXPECT_FALSE(fresh.part.import_chunk(fresh.state, 0, bytes));
  EXPECT_EQ(fresh.streams(), before);
  EXPECT_TRUE(fresh.part.import_chunk(fresh.state, 1, bytes));
}

// ---- Foreign bytes

TEST(StatePartCheck, NoPartIsNone) {
  expect_refused(Layout{}.part(0), {}, Errc::invalid_argument, "there is no part");
}

TEST(StatePartCheck, BytesThatNoExportHasWritten) {
  Node node({}, 0);
  const Bytes good = node.exported();
  const char* const text = "no part that an export has written";
  expect_refused(node.part, Bytes(200), Errc::invalid_argument, text);
  expect_refused(node.part, Bytes(sizeof(StatePartHeader) - 1), Errc::invalid_argument, text);
  const auto expect_bad = [&](auto change) {
    StatePartHeader header = header_in(good);
    change(header);
    Bytes bytes = good;
    put_header(bytes, header);
    expect_refused(node.part, bytes, Errc::invalid_argument, text);
  };
  expect_bad([](StatePartHeader& header) { ++header.magic; });
  expect_bad([](StatePartHeader& header) { header.version = 0; });
  expect_bad([](StatePartHeader& header) { header.version = 3; });
  expect_bad([](StatePartHeader& header) { header.nodes = 0; });
  expect_bad([](StatePartHeader& header) { header.node = header.nodes; });
  expect_bad([](StatePartHeader& header) { header.chunk_elements = 0; });
  expect_bad([](StatePartHeader& header) { header.bytes = sizeof header - 1; });
  expect_bad([](StatePartHeader& header) { header.bytes = ~std::uint64_t{0}; });
}

TEST(StatePartCheck, APartOfMoreNodesThanAGroupHas) {
  Node node({}, 0);
  Bytes bytes = node.exported();
  StatePartHeader header = header_in(bytes);
  header.nodes = 254;
  put_header(bytes, header);
  expect_refused(node.part, bytes, Errc::invalid_argument, "the parts of all 254 nodes are needed");
}

TEST(StatePartCheck, TruncatedParts) {
  Node node({}, 0);
  Bytes bytes = node.exported();
  bytes.pop_back();
  expect_refused(node.part, bytes, Errc::invalid_argument, "no part that an export has written");
  // It says itself that it is shorter than its elements.
  StatePartHeader header = header_in(bytes);
  header.bytes = bytes.size();
  put_header(bytes, header);
  expect_refused(node.part, bytes, Errc::invalid_argument, "not as long as its header says");
}

TEST(StatePartCheck, AnotherCountOrMemory) {
  Node node({}, 0);
  const StatePart longer = Layout{.count = 11}.part(0);
  expect_refused(longer, node.exported(), Errc::state_mismatch,
                 "the part is of 10 elements with memory 1, the tensor of 11 with memory 1");
  const StatePart shifts = Layout{.recipe = "diana(qsgd:levels=7)"}.part(0);
  expect_refused(shifts, node.exported(), Errc::state_mismatch, "with memory 2");
}

TEST(StatePartCheck, TheSameNodeTwiceOrPartsOfTwoExports) {
  Node node({}, 0);
  const Bytes part = node.exported();
  expect_refused(node.part, joined({part, part}), Errc::invalid_argument,
                 "the part of node 0 is given twice");
  Node other({.nodes = 3}, 1);
  expect_refused(node.part, joined({part, other.exported()}), Errc::invalid_argument,
                 "the parts are of different exports");
}

TEST(StatePartCheck, ThisNodesPartIsFoundAmongAll) {
  Nodes nodes({.nodes = 3});
  const Bytes parts = nodes.exported();
  for (const Node& node : nodes.all) {
    const Verdict verdict = check(node.part, parts);
    EXPECT_TRUE(verdict.same_layout) << verdict.text;
    EXPECT_EQ(verdict.own, node.number * node.part.bytes());
  }
}

TEST(StatePartCheck, ErrorFeedbackOfAnotherLayoutNeedsAllParts) {
  Nodes old({.nodes = 3});
  const StatePart part = Layout{.nodes = 2}.part(1);
  const Verdict verdict = check(part, old.exported());
  EXPECT_EQ(verdict.code, Errc::ok) << verdict.text;
  EXPECT_FALSE(verdict.same_layout);
  expect_refused(part, joined({old.all[0].exported(), old.all[2].exported()}),
                 Errc::invalid_argument, "the parts of all 3 nodes are needed");
  // Other chunks and another spread are another layout too.
  Nodes alike({});
  EXPECT_FALSE(check(Layout{.chunk_elements = 5}.part(0), alike.exported()).same_layout);
  EXPECT_FALSE(check(Layout{.spread = 1}.part(0), alike.exported()).same_layout);
  EXPECT_FALSE(check(Layout{.eager = true}.part(0), alike.exported()).same_layout);
  EXPECT_TRUE(check(Layout{.alpha = 8.0f}.part(0), alike.exported()).same_layout)
      << "sums or averages: the values are the same";
}

TEST(StatePartCheck, AShiftBelongsToItsLayout) {
  const Layout layout{.recipe = "diana(qsgd:levels=7)", .alpha = 0.5f};
  Nodes nodes(layout);
  Layout other = layout;
  other.spread = 1;
  expect_refused(other.part(0), nodes.exported(), Errc::state_mismatch, "Start from zero");
  other = layout;
  other.alpha = 0.25f;
  expect_refused(other.part(0), nodes.exported(), Errc::state_mismatch, "Start from zero");
}

// ---- Another layout

// What is owed of an element is the same before and after, and lies where the new layout sends it.
void expect_refolded(const Layout& before, const Layout& after) {
  Nodes old(before);
  const Bytes parts = old.exported();
  Nodes now(after);
  for (Node& node : now.all) node.refold_all(parts);
  for (std::uint64_t i = 0; i < before.count; ++i) {
    float of_results = 0, of_contributions = 0;
    for (const Node& node : old.all) {
      const bool owned = !before.eager && before.owner_of_element(i) == node.number;
      (owned ? of_results : of_contributions) += node.residuals()[i];
    }
    for (const Node& node : now.all) {
      const std::uint32_t owner = after.owner_of_element(i);
      float expected = node.number == (owner + 1) % after.nodes ? of_contributions : 0.0f;
      if (after.eager && node.number == (owner + 1) % after.nodes) {
        expected += before.alpha * of_results;
      } else if (!after.eager && node.number == owner) {
        expected += of_results;
      }
      EXPECT_EQ(node.residuals()[i], expected) << "element " << i << ", node " << node.number;
    }
  }
}

TEST(StatePartRefold, WhatNodesOweIsAddedUp) {
  expect_refolded({.nodes = 3}, {.nodes = 2});
  expect_refolded({.nodes = 2, .spread = 1}, {.chunk_elements = 3, .nodes = 4, .spread = 3});
  expect_refolded({.nodes = 4}, {.nodes = 1});
  expect_refolded({.nodes = 1}, {.nodes = 3});
}

// A result of an average is worth as many contributions as were averaged.
TEST(StatePartRefold, WithoutOwnersOneContributorOwesAll) {
  expect_refolded({.nodes = 3}, {.nodes = 3, .eager = true});
  expect_refolded({.nodes = 3, .alpha = 8.0f}, {.nodes = 2, .spread = 1, .eager = true});
  expect_refolded({.nodes = 3, .eager = true}, {.nodes = 2});
  expect_refolded({.nodes = 3, .eager = true}, {.nodes = 2, .eager = true});
}

TEST(StatePartRefold, WhatChangedSinceTheCheckIsRefusedAndNothingIsTaken) {
  Nodes old({.nodes = 3});
  const Bytes good = old.exported();
  Node node({.nodes = 1}, 0);  // it takes what all owe
  node.set_residuals(1.0f);
  const auto before = node.residuals();
  const std::size_t second = old.all[0].part.bytes();
  const auto expect_refusal = [&](auto change) {
    Bytes bytes = good;
    change(bytes);
    EXPECT_FALSE(node.part.refold_chunk(node.state, 1, bytes));
    EXPECT_FALSE(node.part.refold_elements(node.state, {4, 4}, bytes, true));
    EXPECT_EQ(node.residuals(), before);
  };
  expect_refusal([](Bytes& bytes) { bytes.pop_back(); });
  expect_refusal([&](Bytes& bytes) { bytes[second] ^= std::byte{1}; });
  expect_refusal([](Bytes& bytes) { put_residual(bytes, 5, kNotANumber); });
  // Whose sum is not finite.
  expect_refusal([&](Bytes& bytes) {
    for (std::uint64_t i = 0; i < 10; ++i) {
      for (std::uint64_t part = 0; part < 3; ++part) {
        const float most = std::numeric_limits<float>::max();
        std::memcpy(bytes.data() + part * second + sizeof(StatePartHeader) + i * sizeof most, &most,
                    sizeof most);
      }
    }
  });
  EXPECT_TRUE(node.part.refold_chunk(node.state, 1, good));
}

TEST(StatePart, KnowsPartsOfAverages) {
  const Layout sums, averages{.alpha = 2.0f}, eager{.eager = true, .alpha = 2.0f};
  const Bytes of_sums = room_for(sums.part(0)), of_averages = room_for(averages.part(1));
  EXPECT_FALSE(StatePart::are_of_averages(of_sums));
  EXPECT_TRUE(StatePart::are_of_averages(joined({of_sums, of_averages})));
  EXPECT_FALSE(StatePart::are_of_averages(room_for(eager.part(0)))) << "it has no results";
  EXPECT_FALSE(StatePart::are_of_averages(Bytes(100)));
}

}  // namespace
}  // namespace tern::daemon::state_part_test
