#include "bench/tensor_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tern::bench {
namespace {

class TensorFile : public testing::Test {
 protected:
  TensorFile() : path_(testing::TempDir() + "tensor_file_test_" + std::to_string(::getpid())) {}
  ~TensorFile() override { std::filesystem::remove(path_); }

  Result<Tensor> read(const std::string& bytes, std::optional<DType> raw = std::nullopt) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_tensor(path_, raw);
  }

  // A header of 128 bytes, as NumPy writes it.
  static std::string npy(const std::string& type) {
    std::string text = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (2,), }";
    text.append(117 - text.size(), ' ');
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + text + "\n";
  }

  std::string path_;
};

TEST_F(TensorFile, ReadsF32) {
  const auto tensor = read(npy("<f4") + std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->dtype, DType::f32);
  EXPECT_EQ(to_f32(*tensor), (std::vector<float>{1.0f, -2.0f}));
}

TEST_F(TensorFile, ReadsBothTypesOfTwoBytes) {
  const auto half = read(npy("<f2") + std::string("\0\x3c\0\xc0", 4));
  ASSERT_TRUE(half);
  EXPECT_EQ(half->dtype, DType::f16);
  EXPECT_EQ(to_f32(*half), (std::vector<float>{1.0f, -2.0f}));
  const auto brain = read(npy("<V2") + std::string("\x80\x3f\0\xc0", 4));
  ASSERT_TRUE(brain);
  EXPECT_EQ(brain->dtype, DType::bf16);
  EXPECT_EQ(to_f32(*brain), (std::vector<float>{1.0f, -2.0f}));
}

TEST_F(TensorFile, RawBytesNeedAType) {
  EXPECT_FALSE(read("abcd"));
  const auto tensor = read("abcd", DType::bf16);
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->count(), 2U);
}

TEST_F(TensorFile, RefusesWhatIsCutOffOrOfAnotherType) {
  EXPECT_FALSE(read("", DType::f32));
  EXPECT_FALSE(read(std::string("\x93NUMPY", 6)));
  EXPECT_FALSE(read(npy("<f4")));
  EXPECT_FALSE(read(npy("<f4") + "abc"));
  EXPECT_FALSE(read(npy("<f4").substr(0, 60)));
  EXPECT_FALSE(read(npy("<i8") + "abcdefgh"));
  EXPECT_FALSE(read_tensor(path_ + ".absent", std::nullopt));
}

}  // namespace
}  // namespace tern::bench
