#include "examples/train_chars/text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace tern::train_chars {
namespace {

class TextTest : public testing::Test {
 protected:
  TextTest() : path_(testing::TempDir() + "text_test_" + std::to_string(::getpid())) {}
  ~TextTest() override { std::filesystem::remove(path_); }

  std::string path_;
};

TEST_F(TextTest, NumbersItsCharactersInTheirOrder) {
  std::string bytes(2000, 'b');
  bytes[1] = '\n';
  bytes[1999] = static_cast<char>(0xff);
  std::ofstream(path_) << bytes;
  const Text text = load_text(path_);
  EXPECT_EQ(text.symbols, 3U);
  EXPECT_EQ(text.train.size(), 1800U);
  EXPECT_EQ(text.test.size(), 200U);
  EXPECT_EQ(text.train[0], 1);
  EXPECT_EQ(text.train[1], 0);
  EXPECT_EQ(text.test[199], 2);
}

TEST_F(TextTest, SaysWhichFileIsMissingOrTooShort) {
  try {
    load_text(path_);
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(path_), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--data"), std::string::npos);
  }
  std::ofstream(path_) << "short";
  EXPECT_THROW(load_text(path_), std::runtime_error);
}

}  // namespace
}  // namespace tern::train_chars
