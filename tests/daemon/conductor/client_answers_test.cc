#include "daemon/conductor/client_answers.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

TEST(ClientAnswers, ALongTextIsCutAndEnds) {
  RecordingPort port;
  ClientAnswers answers(port);
  answers.done(3, 9, Errc::mismatch, std::string(5000, 'x'));
  ASSERT_EQ(port.told.size(), 1u);
  EXPECT_EQ(port.told[0].client, 3u);
  EXPECT_EQ(port.told[0].request, 9u);
  EXPECT_EQ(port.told[0].status, Errc::mismatch);
  EXPECT_EQ(port.told[0].text, std::string(sizeof(shm::DonePacket::detail) - 1, 'x'));
}

}  // namespace
}  // namespace tern::daemon::conductor_test
