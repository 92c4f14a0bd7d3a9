#include "examples/training/recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>

namespace tern::training {
namespace {

using Steps = std::vector<int>;

TEST(RecordSteps, AreNumbersAndRanges) {
  EXPECT_EQ(parse_record_steps("5", 10), Steps({5}));
  EXPECT_EQ(parse_record_steps("9,1,3-5,4", 10), Steps({1, 3, 4, 5, 9}));
  EXPECT_EQ(parse_record_steps("", 99), Steps({1, 10}));
  EXPECT_EQ(parse_record_steps("", 100), Steps({1, 10, 100}));
}

TEST(RecordSteps, RefuseAnythingElse) {
  for (const char* text : {"0", "-1", "a", "1,", ",1", "1,,2", "5-3", "1-", "11", "1-11", "1 2",
                           "99999999999999999999"}) {
    EXPECT_THROW(parse_record_steps(text, 10), std::runtime_error) << text;
  }
}

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() : folder_(testing::TempDir() + "recorder_test_" + std::to_string(::getpid())) {
    append_parameter("a", {2, 3}, 0, &layout_);
    append_parameter("b", {1, 4}, 1, &layout_);
    for (int i = 0; i < 10; ++i) flat_.push_back(static_cast<float>(i));
  }
  ~RecorderTest() override { std::filesystem::remove_all(folder_); }

  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  std::string folder_;
  std::vector<Parameter> layout_;
  std::vector<float> flat_;
};

TEST_F(RecorderTest, WritesTheTensorsOfRecordedStepsAndTheWeightsAfter) {
  const Recorder recorder(folder_ + "/deep", {2}, layout_);
  for (int step = 1; step <= 4; ++step) {
    recorder.weights(step, flat_);
    recorder.gradients(step, 1, flat_);
  }
  folder_ += "/deep";
  EXPECT_EQ(files(),
            (std::set<std::string>{"grad_b_step2.npy", "weight_a_step2.npy", "weight_a_step3.npy",
                                   "weight_b_step2.npy", "weight_b_step3.npy"}));
}

TEST_F(RecorderTest, AFileIsAHeaderAndTheValues) {
  const Recorder recorder(folder_, {1}, layout_);
  recorder.gradients(1, 0, flat_);
  std::ifstream file(folder_ + "/grad_a_step1.npy", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  ASSERT_EQ(bytes.size() % 64, 24U);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(static_cast<unsigned char>(bytes[8]) + 10U, bytes.size() - 24);
  EXPECT_NE(bytes.find("'descr': '<f4', 'fortran_order': False, 'shape': (2, 3,)"),
            std::string::npos);
  const auto written = std::as_bytes(std::span(bytes).last(24));
  EXPECT_TRUE(std::ranges::equal(written, std::as_bytes(std::span(flat_).first(6))));
}

TEST_F(RecorderTest, WithoutAFolderNothingIsWritten) {
  const Recorder recorder("", {1}, layout_);
  recorder.gradients(1, 0, flat_);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(RecorderTest, AFolderThatCannotBeMadeIsRefused) {
  std::ofstream(folder_) << "a file";
  EXPECT_THROW(Recorder(folder_ + "/below", {1}, layout_), std::runtime_error);
}

}  // namespace
}  // namespace tern::training
