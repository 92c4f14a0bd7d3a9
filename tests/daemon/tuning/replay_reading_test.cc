#include "daemon/tuning/replay_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "folder.h"

namespace tern::daemon::tuning_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReplayReadingTest : public testing::Test {
 protected:
  void write(const std::string& records) const {
    std::ofstream(folder.file("run-0.log")) << tuner::choice_log_head() << records;
  }
  // As the only other node's is, on two lanes.
  ReplayTerms terms() const {
    ReplayTerms made;
    made.log = "run";
    made.path = folder.file("run-0.log");
    made.tensor = "w";
    made.nodes = 2;
    made.lanes = 2;
    return made;
  }
  Result<ReplayReading::Lanes> read(const ReplayTerms& terms) const {
    ReplayReading reading(terms, {"raw", "ef(bf16)"});
    reading.read();
    return reading.take();
  }

  const Folder folder;
};

TEST_F(ReplayReadingTest, KeepsTheRecordsOfItsTensorInOrderOfUse) {
  write(
      "op w 7 1 0 raw ef(bf16)\nop v 0 0 0 raw raw\nop w 3 1 300 ef(bf16) raw\n"
      "chunk w 9 0 2 4 raw\nchunk w 9 0 1 4 ef(bf16)\n");
  const auto lanes = read(terms());
  ASSERT_TRUE(lanes) << lanes.error().text;
  ASSERT_EQ(lanes->size(), 2u);
  const ReplayedLane& lane = lanes->at(1);
  ASSERT_EQ(lane.ops.size(), 2u);
  EXPECT_EQ(lane.ops[0].use, 3u);
  EXPECT_EQ(lane.ops[0].probe_chunks, 255u);
  EXPECT_THAT(lane.by_node(lane.ops[0]), ElementsAre(1, 0));
  EXPECT_THAT(lane.by_node(lane.ops[1]), ElementsAre(0, 1));
  ASSERT_EQ(lanes->at(0).chunks.size(), 2u);
  EXPECT_EQ(lanes->at(0).chunks[0].place, 8u);
  EXPECT_EQ(lanes->at(0).chunks[1].place, 9u);
}

TEST_F(ReplayReadingTest, OfANodeThatIsNotTheFirstHasItsOwnResultsInItsPlace) {
  write("op w 0 0 0 ef(bf16) raw\n");
  ReplayTerms second = terms();
  second.self = 1;
  const auto lanes = read(second);
  ASSERT_TRUE(lanes) << lanes.error().text;
  EXPECT_THAT(lanes->at(0).by_node(lanes->at(0).ops[0]), ElementsAre(0, 1));
}

TEST_F(ReplayReadingTest, OfALongLogIsRefused) {
  write("op w 0 0 0 raw raw\nop w 1 0 0 raw raw\n");
  ReplayTerms shorter = terms();
  shorter.most_bytes = 40;
  const auto lanes = read(shorter);
  ASSERT_FALSE(lanes);
  EXPECT_EQ(lanes.error().text,
            "replay: run: line 3: the log is longer than 40 bytes: replay a shorter run");
  shorter.most_bytes = 60;
  EXPECT_TRUE(read(shorter));
}

TEST_F(ReplayReadingTest, OfADamagedLogNamesTheLine) {
  write("op w 0 0 0 raw raw\nop w 1\n");
  const auto lanes = read(terms());
  ASSERT_FALSE(lanes);
  EXPECT_EQ(lanes.error().code, Errc::bad_recipe);
  EXPECT_THAT(lanes.error().text, HasSubstr("replay: run: line 3: "));
}

TEST_F(ReplayReadingTest, OfWhatCannotBeReadToItsEndIsRefused) {
  ReplayTerms folders = terms();
  folders.path = folder.path();
  const auto lanes = read(folders);
  ASSERT_FALSE(lanes);
  EXPECT_EQ(lanes.error().text, "replay: run: line 1: what follows cannot be read");
}

TEST_F(ReplayReadingTest, IsReadByAnotherThread) {
  write("op w 0 0 0 raw raw\n");
  ReplayReading reading(terms(), {"raw"});
  EXPECT_FALSE(reading.is_done());
  std::thread helper([&reading] { reading.read(); });
  reading.wait();
  EXPECT_TRUE(reading.is_done());
  EXPECT_GE(reading.bytes(), sizeof(ReplayedLane::Op));
  EXPECT_TRUE(reading.take());
  helper.join();
}

}  // namespace
}  // namespace tern::daemon::tuning_test
