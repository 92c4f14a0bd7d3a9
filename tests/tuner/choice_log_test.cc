#include "tuner/choice_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tern::tuner {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

LoggedOp some_op(std::string tensor) {
  return {std::move(tensor), 17, 1, 4, "ef(int:bits=4)", {"3lc:s=1", "raw"}};
}

TEST(ChoiceLog, ReadsWhatItWrites) {
  const LoggedOp op = some_op("layer1.weight");
  const LoggedChunk chunk{"layer1.weight", 18, 0, 2, 7, "ef(bf16)"};
  const auto log = parse_choice_log(choice_log_head() + format(op) + format(chunk) + format(op));
  ASSERT_TRUE(log.has_value()) << log.error().text;
  ASSERT_EQ(log->ops.size(), 2u);
  EXPECT_EQ(log->ops[0], op);
  EXPECT_EQ(log->ops[1], op);
  ASSERT_EQ(log->chunks.size(), 1u);
  EXPECT_EQ(log->chunks[0], chunk);
}

// The format is frozen: old logs stay readable.
TEST(ChoiceLog, HasThisForm) {
  EXPECT_EQ(choice_log_head(), "tern-choices 1\n");
  EXPECT_EQ(choice_log_head(2), "tern-choices 1\ncut 2\n");
  EXPECT_EQ(choice_log_head(2, 2), "tern-choices 1\ncut 2\neager_form 2\n");
  EXPECT_EQ(choice_log_incomplete(), "incomplete limit\n");
  EXPECT_EQ(format(some_op("a b")), "op a%20b 17 1 4 ef(int:bits=4) 3lc:s=1 raw\n");
  EXPECT_EQ(format(LoggedChunk{"w", 18, 0, 2, 7, "ef(bf16)"}), "chunk w 18 0 2 7 ef(bf16)\n");
}

TEST(ChoiceLog, NamesTheCutOfItsTensors) {
  const auto cut_of = [](std::uint32_t cut) {
    return parse_choice_log(choice_log_head(cut) + format(some_op("w"))).value().cut;
  };
  EXPECT_EQ(cut_of(1), 1u);
  EXPECT_EQ(cut_of(2), 2u);
  EXPECT_EQ(parse_choice_log("tern-choices 1\n" + format(some_op("w")))->cut, 1u) << "of old";
  EXPECT_FALSE(parse_choice_log("tern-choices 1\ncut\n"));
  EXPECT_FALSE(parse_choice_log("tern-choices 1\ncut x\n"));
}

TEST(ChoiceLog, SaysThatItEndedBeforeItsRun) {
  const std::string text = choice_log_head() + format(some_op("w"));
  EXPECT_FALSE(parse_choice_log(text)->incomplete);
  EXPECT_TRUE(parse_choice_log(text + choice_log_incomplete())->incomplete);
}

TEST(ChoiceLog, NeitherALineNorTheWholeIsWithoutABound) {
  std::istringstream endless(choice_log_head() + std::string(1 << 20, 'x'));
  const auto line = ChoiceLogReader(endless).next();
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().text, "line 2: it is longer than 65536 bytes");
  std::string cuts = choice_log_head();
  for (int i = 0; i < 1000; ++i) cuts += "cut 1\n";
  std::istringstream many(cuts);
  const auto whole = ChoiceLogReader(many, 100).next();
  ASSERT_FALSE(whole);
  EXPECT_THAT(whole.error().text, HasSubstr("the log is longer than 100 bytes"));
}

TEST(ChoiceLog, NamesTheFormOfSmallOperations) {
  const auto form_of = [](std::uint32_t form) {
    return parse_choice_log(choice_log_head(2, form) + format(some_op("w"))).value().eager_form;
  };
  EXPECT_EQ(form_of(1), 1u);
  EXPECT_EQ(form_of(2), 2u);
  EXPECT_FALSE(parse_choice_log("tern-choices 1\neager_form x\n"));
}

TEST(ChoiceLog, NamesMayHoldAnyByte) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const std::string& name :
       {all, std::string("100%"), std::string("%20"), std::string("\n")}) {
    const auto log = parse_choice_log(choice_log_head() + format(some_op(name)));
    ASSERT_TRUE(log.has_value()) << log.error().text;
    EXPECT_EQ(log->ops.at(0).tensor, name);
  }
}

TEST(ChoiceLog, ALineThatWasCutOffIsLeftOut) {
  const std::string whole =
      choice_log_head() + format(some_op("first")) + format(some_op("second"));
  const std::size_t second = whole.size() - format(some_op("second")).size();
  for (std::size_t size = second; size < whole.size(); ++size) {
    const auto log = parse_choice_log(whole.substr(0, size));
    ASSERT_TRUE(log.has_value()) << log.error().text;
    ASSERT_EQ(log->ops.size(), 1u);
    EXPECT_EQ(log->ops[0].tensor, "first");
  }
}

TEST(ChoiceLog, EveryErrorNamesItsLine) {
  for (const char* bad :
       {"op\n", "op a 1 2 3 raw\n", "op  1 2 3 raw raw\n", "op a x 2 3 raw raw\n",
        "op a 1 -2 3 raw raw\n", "op a 1 2 3x raw raw\n", "op a%2 1 2 3 raw raw\n",
        "op a%zz 1 2 3 raw raw\n", "op a 1 2 3  raw\n",
        "op a 99999999999999999999999 2 3 raw raw\n", "chunk a 1 2 1 4\n", "chunk a 1 2 3 4 raw\n",
        "chunk a 1 2 0 4 raw\n", "chunk a 1 2 1 4 raw raw\n", "chunk a 1 2 1 x raw\n", "what a 1\n",
        "\n"}) {
    const auto log =
        parse_choice_log(choice_log_head() + format(some_op("fine")) + bad + format(some_op("x")));
    ASSERT_FALSE(log.has_value()) << bad;
    EXPECT_THAT(log.error().text, StartsWith("line 3: ")) << bad;
  }
}

TEST(ChoiceLog, AnotherVersionAndNoLogAreRefused) {
  for (const char* text : {"tern-choices 2\n", "op a 1 2 3 raw raw\n", "", "tern-choices 1"}) {
    const auto log = parse_choice_log(text);
    ASSERT_FALSE(log.has_value()) << text;
    EXPECT_THAT(log.error().text, HasSubstr("line 1: "));
  }
  EXPECT_TRUE(parse_choice_log(choice_log_head()).has_value());
}

}  // namespace
}  // namespace tern::tuner
