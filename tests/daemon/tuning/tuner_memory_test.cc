#include "daemon/tuning/tuner_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/daemon/service/sleeping_disk.h"
#include "tuning_rig.h"

namespace tern::daemon::tuner_memory_test {
namespace {

using tuning_test::Folder;
using tuning_test::kSecond;
using tuning_test::text_of;

class TunerMemoryTest : public ::testing::Test {
 protected:
  // Something of a tensor of that name.
  static void learn(tuner::Tuner& tuner, const std::string& name = "weights") {
    tuner::TensorInfo info;
    info.name = name;
    info.shape.bytes = info.shape.chunk_bytes = 1 << 20;
    info.shape.nodes = 2;
    info.peers = {"there:7000"};
    tuner.add_tensor(1, info);
    tuner.observe_sample(1, {.candidate = 1,
                             .bytes = 1 << 18,
                             .block_bytes = 1 << 16,
                             .encode_ns = 1e5,
                             .decode_ns = 1e5,
                             .loss = 0.01});
    tuner.remove_tensor(1);
  }

  const Folder folder;
  const std::string file = folder.file("tuner.json");
  ManualClock clock;
  Disposal writing{Disposal::By::caller};
  tuner::Tuner learnt{tuner::usual_candidates()}, fresh{tuner::usual_candidates()};
};

TEST_F(TunerMemoryTest, OutlivesATuner) {
  learn(learnt);
  ASSERT_NE(learnt.remember(), fresh.remember());
  TunerMemory(file, clock, writing).save(learnt);
  TunerMemory(file, clock, writing).load(fresh);
  EXPECT_EQ(fresh.remember(), learnt.remember());
}

TEST_F(TunerMemoryTest, WithoutAFileIsNeverDue) {
  const TunerMemory memory("", clock, writing);
  clock.advance_ns(3600 * kSecond);
  EXPECT_FALSE(memory.is_due());
}

TEST_F(TunerMemoryTest, IsDueAMinuteAfterItWasSaved) {
  TunerMemory memory(file, clock, writing);
  clock.advance_ns(60 * kSecond - 1);
  EXPECT_FALSE(memory.is_due());
  clock.advance_ns(1);
  EXPECT_TRUE(memory.is_due());
  memory.save(learnt);
  EXPECT_FALSE(memory.is_due());
}

TEST_F(TunerMemoryTest, GoesOnWhereASliceIsOver) {
  for (const char* name : {"weights", "bias", "scale"}) learn(learnt, name);
  TunerMemory memory(file, clock, writing);
  clock.advance_ns(60 * kSecond);
  int slices = 0;
  for (; memory.is_due(); ++slices) {
    EXPECT_FALSE(std::filesystem::exists(file));
    memory.save_some(learnt, TimeSlice(clock, 0));
  }
  EXPECT_GT(slices, 3);
  TunerMemory(file, clock, writing).load(fresh);
  EXPECT_EQ(fresh.remember(), learnt.remember());
  clock.advance_ns(60 * kSecond - 1);
  EXPECT_FALSE(memory.is_due()) << "a minute after its end";
}

TEST_F(TunerMemoryTest, ASaveAtOnceBeginsAnew) {
  learn(learnt);
  TunerMemory memory(file, clock, writing);
  clock.advance_ns(60 * kSecond);
  memory.save_some(learnt, TimeSlice(clock, 0));
  learn(learnt, "bias");
  memory.save(learnt);
  EXPECT_FALSE(memory.is_due());
  TunerMemory(file, clock, writing).load(fresh);
  EXPECT_EQ(fresh.remember(), learnt.remember());
}

// One save waits for a disk that sleeps, however long it does.
TEST_F(TunerMemoryTest, IsNotDueBeforeTheDiskHasTheLast) {
  SleepingDisk disk;
  TunerMemory memory(file, clock, disk.writing());
  clock.advance_ns(60 * kSecond);
  memory.save_some(learnt, TimeSlice(clock, kSecond));
  EXPECT_FALSE(std::filesystem::exists(file));
  clock.advance_ns(3600 * kSecond);
  memory.tell_problem();
  EXPECT_FALSE(memory.is_due());
  disk.wake();
  memory.tell_problem();
  EXPECT_TRUE(memory.is_due());
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(TunerMemoryTest, ADamagedFileIsIgnored) {
  const nlohmann::json before = fresh.remember();
  for (const char* text : {"", "{", "[1, 2]", R"({"version": "none"})"}) {
    std::ofstream(file) << text;
    TunerMemory(file, clock, writing).load(fresh);
    EXPECT_EQ(fresh.remember(), before) << text;
  }
}

TEST_F(TunerMemoryTest, WhatCannotBeWrittenLeavesTheOldFile) {
  TunerMemory memory(file, clock, writing);
  learn(learnt);
  memory.save(learnt);
  const std::string before = text_of(file);
  ASSERT_FALSE(before.empty());
  ASSERT_TRUE(std::filesystem::create_directory(file + ".new"));
  learn(learnt, "other");
  memory.save(learnt);
  EXPECT_EQ(text_of(file), before);
  memory.save(learnt);
  EXPECT_NE(text_of(file), before) << "nothing is in its way any more";
}

}  // namespace
}  // namespace tern::daemon::tuner_memory_test
