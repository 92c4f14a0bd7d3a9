#include "counters/counters_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "counters/snapshot.h"

namespace tern::counters {
namespace {

using ::testing::HasSubstr;

std::vector<Block> two_blocks() {
  return {Block{{{"joins", "1", "ranks that joined"}}, 1},
          Block{{{"entries", "1", "entries taken"},
                 {"busy_ns", "ns", "time at work"},
                 {"waiting", "1", "what waits", Kind::gauge}},
                3}};
}

std::vector<std::byte> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

class CountersFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/tern_counters_XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    path_ = directory_ + "/control.counters";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Result<CountersFile> create() {
    return CountersFile::create(path_, 0640, {77, 5'000'000'000, "ab12", "0.1.0"}, two_blocks());
  }

  std::string directory_, path_;
};

TEST_F(CountersFileTest, IsReadWhileItIsWritten) {
  auto file = create();
  ASSERT_TRUE(file) << file.error().text;
  file->words(0, 0)[0] = 4;
  file->words(1, 0)[0] = 1;
  file->words(1, 2)[0] = 20;
  file->words(1, 1)[1] = 300;
  file->words(1, 2)[2] = 9;
  file->touch(6'000'000'000);
  const auto seen = read_counters(path_);
  ASSERT_TRUE(seen) << seen.error().text;
  EXPECT_TRUE(seen->alive);
  EXPECT_EQ(seen->pid, 77u);
  EXPECT_EQ(seen->started_ns, 5'000'000'000u);
  EXPECT_EQ(seen->written_ns, 6'000'000'000u);
  EXPECT_EQ(seen->node_id, "ab12");
  EXPECT_EQ(seen->software, "0.1.0");
  ASSERT_EQ(seen->counters.size(), 4u);
  EXPECT_EQ(seen->counters[0].name, "joins");
  EXPECT_EQ(seen->counters[0].value(), 4u);
  EXPECT_EQ(seen->counters[1].instances, (std::vector<std::uint64_t>{1, 0, 20}));
  EXPECT_EQ(seen->counters[1].value(), 21u);
  EXPECT_EQ(seen->counters[2].unit, "ns");
  EXPECT_EQ(seen->counters[2].help, "time at work");
  EXPECT_EQ(seen->counters[2].value(), 300u);
  EXPECT_EQ(seen->counters[3].kind, Kind::gauge);
  EXPECT_EQ(seen->counters[3].instances[2], 9u);
}

TEST_F(CountersFileTest, GivesEachWriterCacheLinesOfItsOwn) {
  auto file = create();
  ASSERT_TRUE(file);
  const auto line = [&](std::size_t block, std::uint32_t instance) {
    return (file->words(block, instance).data() - file->words(0, 0).data()) * 8 / 128;
  };
  EXPECT_NE(line(0, 0), line(1, 0));
  EXPECT_NE(line(1, 0), line(1, 1));
  EXPECT_NE(line(1, 1), line(1, 2));
}

TEST_F(CountersFileTest, HasItsModeAndGoesWithItsWriter) {
  {
    auto file = create();
    ASSERT_TRUE(file);
    struct stat info {};
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0640u);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(read_counters(path_).error().code, Errc::daemon_absent);
}

TEST_F(CountersFileTest, OutlivesAWriterThatIsKilledAndIsReplacedByTheNext) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto file = create();
    if (!file) ::_exit(1);
    file->words(0, 0)[0] = 41;
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto last = read_counters(path_);
  ASSERT_TRUE(last) << last.error().text;
  EXPECT_FALSE(last->alive);
  EXPECT_EQ(last->counters[0].value(), 41u);

  auto next = create();
  ASSERT_TRUE(next) << next.error().text;
  const auto fresh = read_counters(path_);
  ASSERT_TRUE(fresh);
  EXPECT_TRUE(fresh->alive);
  EXPECT_EQ(fresh->counters[0].value(), 0u);
}

TEST_F(CountersFileTest, OfALivingWriterIsLeftAlone) {
  auto first = create();
  ASSERT_TRUE(first);
  first->words(0, 0)[0] = 3;
  const auto second = create();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::already_exists);
  EXPECT_THAT(second.error().text, HasSubstr(path_));
  EXPECT_EQ(read_counters(path_)->counters[0].value(), 3u);
}

// As an observer may be, who can read it: with every lock that takes no more.
TEST_F(CountersFileTest, OfADeadWriterIsReplacedThoughAReaderHoldsLocks) {
  {
    auto file = create();
    ASSERT_TRUE(file);
    std::filesystem::copy(path_, directory_ + "/left");
  }
  std::filesystem::rename(directory_ + "/left", path_);
  const Fd reader(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(reader.get(), LOCK_EX | LOCK_NB), 0);
  struct flock shared {};
  shared.l_type = F_RDLCK;
  ASSERT_EQ(::fcntl(reader.get(), F_OFD_SETLK, &shared), 0);
  EXPECT_FALSE(read_counters(path_)->alive);
  const auto next = create();
  ASSERT_TRUE(next) << next.error().text;
  EXPECT_TRUE(read_counters(path_)->alive);
}

TEST_F(CountersFileTest, SaysWhereItCannotBe) {
  path_ = directory_ + "/nowhere/control.counters";
  const auto file = create();
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().text, HasSubstr("/nowhere/"));
}

TEST_F(CountersFileTest, LiesBesideTheControlSocket) {
  EXPECT_EQ(path_beside("/run/tern/control.sock"), "/run/tern/control.counters");
  EXPECT_EQ(path_beside("/run/tern/odd"), "/run/tern/odd.counters");
}

// ---- Bytes of anybody's

TEST_F(CountersFileTest, EveryBeginningOfAFileIsRefusedOrSound) {
  auto file = create();
  ASSERT_TRUE(file);
  const auto bytes = bytes_of(path_);
  ASSERT_TRUE(parse_counters(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = parse_counters(std::span(bytes).first(size));
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().code, Errc::corrupt_data);
  }
}

TEST_F(CountersFileTest, NoChangeOfBytesIsBelieved) {
  auto file = create();
  ASSERT_TRUE(file);
  const auto sound = bytes_of(path_);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = sound;
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      bytes[random() % (192 + 4 * 256)] = static_cast<std::byte>(random());
    }
    const auto parsed = parse_counters(bytes);
    refused += parsed ? 0 : 1;
    if (!parsed) continue;
    ASSERT_LE(parsed->counters.size(), kMaxCounters);
    for (const Counter& counter : parsed->counters) {
      ASSERT_LE(counter.name.size(), 48u);
      ASSERT_LE(counter.instances.size(), kMaxInstances);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(CountersFileTest, TextsCannotSteerATerminal) {
  auto file = create();
  ASSERT_TRUE(file);
  auto bytes = bytes_of(path_);
  bytes[192] = std::byte{0x1b};
  EXPECT_EQ(parse_counters(bytes)->counters[0].name, "?oins");
}

TEST_F(CountersFileTest, OfALaterVersionIsNotGuessedAt) {
  auto file = create();
  ASSERT_TRUE(file);
  auto bytes = bytes_of(path_);
  bytes[8] = std::byte{2};
  EXPECT_EQ(parse_counters(bytes).error().code, Errc::version_mismatch);
  bytes[8] = std::byte{0};
  EXPECT_EQ(parse_counters(bytes).error().code, Errc::corrupt_data);
}

TEST_F(CountersFileTest, WhatIsNoFileIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(read_counters(path_).error().code, Errc::corrupt_data);
  EXPECT_FALSE(read_counters(directory_));
  // A sparse file that is larger than any.
  const std::string large = directory_ + "/large";
  std::ofstream(large).put('x');
  std::filesystem::resize_file(large, std::uintmax_t{1} << 40);
  EXPECT_EQ(read_counters(large).error().code, Errc::corrupt_data);
}

}  // namespace
}  // namespace tern::counters
