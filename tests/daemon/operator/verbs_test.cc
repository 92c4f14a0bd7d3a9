#include "daemon/operator/verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/client.h"
#include "tests/sim/world.h"
#include "wire/versions.h"

namespace tern::daemon::verbs_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Nobody's on any machine.
constexpr uid_t kAlice = 3'000'000'001;

Credentials who(uid_t uid) { return {1, uid, 3'000'000'002, {}}; }

class VerbsTest : public ::testing::Test {
 protected:
  VerbsTest() {
    sim::DaemonShape shape;
    shape.tuner = true;
    world_.add_daemon(shape);
    verbs_.set_sources({&access_, &conductor(), world_.daemon(0).tuning.get(), nullptr,
                        [](const Scope&) {
                          return json{{"clients", 7}};
                        },
                        [] { return std::string(); }});
  }

  Conductor& conductor() { return *world_.daemon(0).conductor; }
  Result<json> ask(std::string_view verb, const json& args = json::object(), uid_t uid = 0) {
    return verbs_.handle(verb, args, who(uid));
  }
  std::string problem(std::string_view verb, const json& args, Errc code, uid_t uid = 0) {
    const Result<json> answer = ask(verb, args, uid);
    EXPECT_FALSE(answer);
    if (answer) return "";
    EXPECT_EQ(answer.error().code, code);
    return answer.error().text;
  }

  sim::World world_{1};
  Access access_;
  Verbs verbs_;
};

TEST_F(VerbsTest, WhatIsNoVerbIsRefused) {
  EXPECT_THAT(problem("dance", json::object(), Errc::unsupported), HasSubstr("unknown verb"));
}

TEST_F(VerbsTest, AskWhoMay) {
  EXPECT_TRUE(ask("version", json::object(), kAlice));
  EXPECT_TRUE(ask("clients", json::object(), kAlice));
  for (const char* const verb :
       {"peers", "counters", "host", "settings", "log", "policy", "drain"}) {
    SCOPED_TRACE(verb);
    problem(verb, json::object(), Errc::permission_denied, kAlice);
  }
}

TEST_F(VerbsTest, VersionsAreThoseOfTheFormats) {
  const json version = *ask("version");
  EXPECT_EQ(version["wire"], wire::kWireProtocol);
  EXPECT_EQ(version["shm"], wire::kShmAbi);
  EXPECT_EQ(version["control"], wire::kControlProtocol);
}

TEST_F(VerbsTest, StatusSaysWhatTheCallerIs) {
  const json status = *ask("status", json::object(), kAlice);
  EXPECT_EQ(status["clients"], 7);
  EXPECT_EQ(status["standing"], "user");
  EXPECT_EQ((*ask("status"))["standing"], "administrator");
}

TEST_F(VerbsTest, ListsThatGrowAreMadePieceByPiece) {
  for (const char* const verb : {"groups", "tensors", "tuner"}) {
    EXPECT_NE(verbs_.rows(verb, who(kAlice)), nullptr) << verb;
  }
  EXPECT_EQ(verbs_.rows("clients", who(0)), nullptr);
  EXPECT_EQ(verbs_.rows("dance", who(0)), nullptr);
}

TEST_F(VerbsTest, ExplainNamesWhatItDoesNotFind) {
  EXPECT_THAT(problem("explain", {{"tensor", "w"}}, Errc::unknown_tensor), HasSubstr("w"));
  EXPECT_FALSE(ask("explain", {{"tensor", 3}})) << "no text names no tensor";
}

TEST_F(VerbsTest, ThePolicyIsChangedByAnAdministratorAlone) {
  const std::string before = (*ask("policy"))["policy"];
  problem("policy", {{"set", "job=* level=exact"}}, Errc::permission_denied, kAlice);
  problem("policy", {{"set", 3}}, Errc::invalid_argument);
  EXPECT_FALSE(ask("policy", {{"set", "no such rule"}}));
  EXPECT_EQ((*ask("policy"))["policy"], before);

  ASSERT_TRUE(ask("policy", {{"set", ""}}));
  EXPECT_EQ((*ask("policy"))["policy"], "");
}

TEST_F(VerbsTest, ADrainBeginsAndIsCancelled) {
  EXPECT_THAT(problem("drain", {{"cancel", 1}}, Errc::invalid_argument), HasSubstr("cancel"));
  EXPECT_THAT(problem("drain", {{"if_idle", "yes"}}, Errc::invalid_argument), HasSubstr("if_idle"));
  for (const json& seconds : {json(-1), json(604801), json("soon"), json(nullptr)}) {
    problem("drain", {{"seconds", seconds}}, Errc::invalid_argument);
  }
  EXPECT_FALSE(conductor().drain().is_on());

  world_.clock.advance_ns(1);
  EXPECT_TRUE(ask("drain", {{"seconds", 5}}));
  EXPECT_TRUE(conductor().drain().is_on());
  EXPECT_EQ(conductor().drain().next_deadline_ns(), world_.clock.now_ns() + 5'000'000'000);
  EXPECT_TRUE(ask("drain"));
  EXPECT_TRUE(conductor().drain().is_on()) << "a question changes nothing";
  EXPECT_TRUE(ask("drain", {{"cancel", true}}));
  EXPECT_FALSE(conductor().drain().is_on());
}

TEST_F(VerbsTest, ADaemonThatNobodyNeedsEndsWhereThatIsAsked) {
  EXPECT_TRUE(ask("drain", {{"if_idle", false}}));
  EXPECT_FALSE(conductor().drain().is_on());
  EXPECT_TRUE(ask("drain", {{"if_idle", true}}));
  EXPECT_TRUE(conductor().drain().is_over());
}

TEST_F(VerbsTest, ADaemonWithAClientIsNotIdle) {
  sim::Client& client = world_.connect(0);
  ASSERT_TRUE(world_.run_until([&] { return client.ready(); }));
  EXPECT_TRUE(ask("drain", {{"if_idle", true}}));
  EXPECT_FALSE(conductor().drain().is_on());
}

}  // namespace
}  // namespace tern::daemon::verbs_test
