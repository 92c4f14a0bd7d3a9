#include "daemon/access/access.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

namespace tern::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Nobody's on any machine.
constexpr uid_t kAlice = 3'000'000'001, kBob = 3'000'000'002;
constexpr gid_t kGroup = 3'000'000'003, kOther = 3'000'000'004;

Credentials who(uid_t uid, gid_t gid = kOther, std::vector<gid_t> groups = {}) {
  return {1, uid, gid, std::move(groups)};
}

Access access_of(const std::string& observers, const std::string& administrators = "") {
  Config config;
  config.observers = observers;
  config.administrators = administrators;
  return Access::create(config);
}

// What is logged while it lives.
class LogOf {
 public:
  LogOf() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~LogOf() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST(Access, KnowsRootTheDaemonsUserAndWhoIsListed) {
  const std::string alice = std::to_string(kAlice), group = "@" + std::to_string(kGroup);
  const Access none;
  EXPECT_EQ(none.standing_of(who(0)), Standing::administrator);
  EXPECT_EQ(none.standing_of(who(::geteuid())), Standing::administrator);
  EXPECT_EQ(none.standing_of(who(kAlice)), Standing::user);
  for (const Access& access : {access_of(fmt::format("{}, {}", alice, group)),
                               access_of(fmt::format("{},{}", group, alice))}) {
    EXPECT_EQ(access.standing_of(who(kAlice)), Standing::observer);
    EXPECT_EQ(access.standing_of(who(kBob)), Standing::user);
    EXPECT_EQ(access.standing_of(who(kBob, kGroup)), Standing::observer);
    EXPECT_EQ(access.standing_of(who(kBob, kOther, {kOther, kGroup})), Standing::observer);
    EXPECT_EQ(access.standing_of(who(kBob, kOther, {kOther})), Standing::user);
    // A user's number is not a group's.
    EXPECT_EQ(access.standing_of(who(kGroup, kAlice)), Standing::user);
    EXPECT_TRUE(access.is_observed_by(kGroup));
    EXPECT_FALSE(access.is_observed_by(kOther));
  }
  const Access administrated = access_of("", group);
  EXPECT_EQ(administrated.standing_of(who(kBob, kGroup)), Standing::administrator);
  EXPECT_EQ(administrated.standing_of(who(kAlice)), Standing::user);
  EXPECT_TRUE(administrated.is_observed_by(kGroup));
  // Whose credentials the kernel would not tell.
  EXPECT_EQ(access_of(alice).standing_of(who(static_cast<uid_t>(-1), static_cast<gid_t>(-1))),
            Standing::user);
}

TEST(Access, LooksNamesUp) {
  const passwd* const root = ::getpwuid(0);
  const group* const wheel = ::getgrgid(0);
  ASSERT_TRUE(root != nullptr && wheel != nullptr);
  const Access access = access_of("@" + std::string(wheel->gr_name), root->pw_name);
  EXPECT_EQ(access.standing_of(who(kBob, 0)), Standing::observer);
  EXPECT_TRUE(access.is_observed_by(0));
  // By the name, not because it is root: this process may be.
  EXPECT_EQ(access.standing_of(who(kBob)), Standing::user);
}

TEST(Access, WarnsOfNamesThatDoNotExistUnlessTheyAreTheDefaults) {
  const LogOf log;
  EXPECT_EQ(access_of("no-such-user, @no-such-group").standing_of(who(kBob)), Standing::user);
  EXPECT_THAT(log.text(), HasSubstr("observers: this machine has no user no-such-user"));
  EXPECT_THAT(log.text(), HasSubstr("observers: this machine has no group no-such-group"));
  const LogOf silent;
  access_of(Config{}.observers);
  EXPECT_EQ(silent.text(), "");
}

TEST(Access, ShowsAUserHisOwnAndAnObserverAll) {
  const Access access = access_of(std::to_string(kAlice));
  const Scope all = access.scope_of(who(kAlice)), own = access.scope_of(who(kBob));
  EXPECT_TRUE(all.has_all() && all.has(kBob) && all.has({}));
  EXPECT_FALSE(own.has_all());
  EXPECT_TRUE(own.has(kBob) && own.has({kAlice, kBob}));
  EXPECT_FALSE(own.has(kAlice));
  EXPECT_FALSE(own.has(std::vector<std::uint32_t>{kAlice}));
  EXPECT_FALSE(own.has(std::vector<std::uint32_t>{}));
}

TEST(Access, LetsEachStandingUseItsVerbs) {
  const Access access = access_of(std::to_string(kAlice), "@" + std::to_string(kGroup));
  const Credentials user = who(kBob), observer = who(kAlice), administrator = who(kBob, kGroup);
  const std::set<std::string_view> for_users{"version", "status", "clients", "groups",
                                             "tensors", "tuner",  "explain"};
  for (const VerbRule& rule : kVerbRules) {
    const bool changes = rule.verb == kPolicySet || rule.verb == "drain";
    EXPECT_EQ(access.check(rule.verb, user).has_value(), for_users.contains(rule.verb))
        << rule.verb;
    EXPECT_EQ(access.check(rule.verb, observer).has_value(), !changes) << rule.verb;
    EXPECT_TRUE(access.check(rule.verb, administrator)) << rule.verb;
  }
  const Status counters = access.check("counters", user);
  ASSERT_FALSE(counters);
  EXPECT_EQ(counters.error().code, Errc::permission_denied);
  EXPECT_THAT(counters.error().text, HasSubstr("user " + std::to_string(kBob)));
  EXPECT_THAT(counters.error().text, HasSubstr("setting observers"));
  EXPECT_THAT(access.check(kPolicySet, observer).error().text, HasSubstr("setting administrators"));
}

TEST(Access, SaysWhichVerbsThereAre) {
  for (const Credentials& caller : {who(kBob), who(0)}) {
    const Status unknown = Access().check("nonsense", caller);
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, Errc::unsupported);
    EXPECT_THAT(unknown.error().text, HasSubstr("version, status, clients"));
    EXPECT_THAT(unknown.error().text, Not(HasSubstr(std::string(kPolicySet))));
  }
}

TEST(Access, ThePageHasTheTable) {
  std::ifstream file(TERN_CONTROL_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::size_t rows = 0;
  for (const VerbRule& rule : kVerbRules) {
    const std::string verb =
        rule.verb == kPolicySet ? "`policy` with `set`" : "`" + std::string(rule.verb) + "`";
    EXPECT_THAT(page,
                HasSubstr("| " + verb + " | " + std::string(standing_name(rule.least)) + " |"));
    ++rows;
  }
  EXPECT_EQ(rows, 16u);
}

}  // namespace
}  // namespace tern::daemon
