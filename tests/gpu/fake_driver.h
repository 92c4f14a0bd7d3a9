#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "fake_cuda.h"
#include "gpu/driver.h"

namespace tern::gpu {

// The fake driver as it is when no test has told it anything.
class FakeDriverTest : public testing::Test {
 protected:
  FakeDriverTest() : library_(dlopen(TERN_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL)) {
    FakeCuda* (*find)() = nullptr;
    void* const symbol = library_ != nullptr ? dlsym(library_, FakeCuda::kSymbol) : nullptr;
    EXPECT_NE(symbol, nullptr) << dlerror();
    std::memcpy(&find, &symbol, sizeof(find));
    fake_ = find();
    fake_->reset();
  }
  ~FakeDriverTest() override {
    EXPECT_EQ(fake_->held(), 0);
    dlclose(library_);
  }

  std::unique_ptr<Driver> open() {
    auto driver = Driver::open(TERN_FAKE_CUDA);
    EXPECT_TRUE(driver.has_value()) << driver.error().text;
    return std::move(*driver);
  }

  FakeCuda& fake() { return *fake_; }

 private:
  void* library_;
  FakeCuda* fake_ = nullptr;
};

inline Stream stream_of(std::uintptr_t number) { return reinterpret_cast<Stream>(number); }

}  // namespace tern::gpu
