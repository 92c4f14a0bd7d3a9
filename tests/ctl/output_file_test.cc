#include "ctl/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/fd.h"

namespace tern::ctl {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  OutputFileTest() {
    char folder[] = "/tmp/tern-output-XXXXXX";
    EXPECT_NE(::mkdtemp(folder), nullptr);
    directory_ = folder;
  }
  ~OutputFileTest() override { fs::remove_all(directory_); }

  static std::string text_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // What must be said where nothing may be written.
  static void expect_refused(const fs::path& path, const std::string& cause) {
    const auto file = OutputFile::create(path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, Errc::permission_denied);
    for (const std::string& part : {path.string(), cause, std::string("name a new file")}) {
      EXPECT_NE(file.error().text.find(part), std::string::npos) << file.error().text;
    }
  }

  fs::path directory_;
};

TEST_F(OutputFileTest, IsThereWholeOrNotAtAll) {
  const fs::path path = directory_ / "out";
  {
    auto file = OutputFile::create(path);
    ASSERT_TRUE(file) << file.error().text;
    file->write("half");
  }
  EXPECT_TRUE(fs::is_empty(directory_));
  for (const std::string text : {"whole", "anew"}) {
    auto file = OutputFile::create(path);
    ASSERT_TRUE(file) << file.error().text;
    file->write(text);
    EXPECT_NE(text_of(path), text);
    ASSERT_TRUE(file->finish());
    EXPECT_EQ(text_of(path), text);
  }
}

TEST_F(OutputFileTest, IsForItsUserAlone) {
  const fs::path path = directory_ / "out";
  auto file = OutputFile::create(path);
  ASSERT_TRUE(file) << file.error().text;
  ASSERT_TRUE(file->finish());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// Who has laid the pipe there would read the archive.
TEST_F(OutputFileTest, IsNotWrittenIntoAPipe) {
  const fs::path path = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
  const Fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  expect_refused(path, "neither a file nor a device");
}

TEST_F(OutputFileTest, IsNotWrittenThroughALink) {
  const fs::path pipe = directory_ / "pipe", link = directory_ / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  fs::create_symlink(pipe, link);
  expect_refused(link, "neither a file nor a device");
  fs::create_symlink(directory_ / "nowhere", directory_ / "dangling");
  expect_refused(directory_ / "dangling", "neither a file nor a device");
}

TEST_F(OutputFileTest, DoesNotReplaceAFileOfAnotherUser) {
  fs::path path = "/proc/version";  // where this test is not root, who has it
  if (::geteuid() == 0) {
    path = directory_ / "foreign";
    std::ofstream(path) << "foreign";
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  }
  expect_refused(path, "belongs to uid");
}

TEST_F(OutputFileTest, AFullDiskIsAnErrorOfTheEnd) {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const Fd own(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  ASSERT_EQ(::dup2(full.get(), STDOUT_FILENO), STDOUT_FILENO);
  auto file = OutputFile::create("-");
  ASSERT_EQ(::dup2(own.get(), STDOUT_FILENO), STDOUT_FILENO);
  ASSERT_TRUE(file) << file.error().text;
  file->write(std::string(100'000, 'x'));
  const auto status = file->finish();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().text.find("No space left"), std::string::npos) << status.error().text;
}

TEST_F(OutputFileTest, ADeviceOfTheMachineIsWrittenAsItIs) {
  auto nothing = OutputFile::create("/dev/null");
  ASSERT_TRUE(nothing) << nothing.error().text;
  nothing->write("text");
  EXPECT_TRUE(nothing->finish());
  struct stat info {};
  ASSERT_EQ(::stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode)) << "it was replaced";
}

TEST_F(OutputFileTest, AFolderThatIsNotThereIsAnErrorOfTheBeginning) {
  EXPECT_FALSE(OutputFile::create(directory_ / "none" / "out"));
}

}  // namespace
}  // namespace tern::ctl
