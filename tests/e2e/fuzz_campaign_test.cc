// Bad input without end at each of a daemon's sockets, beside a job that must not notice.
// $TERN_FUZZ_INPUTS says how many for each socket, $TERN_SEED repeats the choices.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/peer_proofs.h"
#include "tests/e2e/rank_process.h"
#include "tests/e2e/socket_fuzzer.h"
#include "tests/environment.h"

namespace tern::e2e {
namespace {

// What a daemon may keep for good of however many inputs: caches that have a bound, and what the
// allocator does not give back.
#if defined(TERN_SANITIZES)
// The address sanitizer keeps the last 256 MiB that were freed.
constexpr std::int64_t kGrowthBytes = (256 + 128) << 20;
#else
constexpr std::int64_t kGrowthBytes = 32 << 20;
#endif
// A changed group id may name a living daemon by another of its addresses, and the link to it
// stays.
constexpr std::size_t kMoreLinks = 16;

// All-reduces one after the other, each result compared, on a thread of their own.
class Job {
 public:
  explicit Job(Cluster& cluster) : ranks_(cluster, {2, 1}, "good") {}
  ~Job() { stop(); }

  std::string begin() {
    if (std::string problem = ranks_.join(); !problem.empty()) return problem;
    thread_ = std::thread([this] {
      while (problem_.empty() && !stop_) {
        problem_ = disagreement(ranks_.ask_all("stream group=g ops=200 tensors=3 large=60000"));
        ops_ += problem_.empty() ? 200 : 0;
      }
    });
    return "";
  }
  // What went wrong, or empty.
  std::string stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return problem_;
  }
  std::uint64_t ops() const { return ops_; }
  const std::string& id() const { return ranks_.id(); }
  // tern1:HOST:PORT:UID:SECRET
  std::string uid() const {
    const std::string shown = id().substr(0, id().rfind(':'));
    return shown.substr(shown.rfind(':') + 1);
  }

 private:
  Ranks ranks_;
  std::string problem_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> ops_{0};
  std::thread thread_;
};

class FuzzCampaign : public ::testing::Test {
 protected:
  explicit FuzzCampaign(const std::vector<Options>& of_nodes = {})
      // Patient with each other: a busy machine is not what is tried here. But links that are cut
      // are soon forgotten, or hundreds of connections a second would meet the bound for them.
      : cluster_(
            2,
            {"--lanes", "2", "--handshake-timeout", "500ms", "--log-level", "warning",
             "--peer-timeout", "20s", "--resume-timeout", "100ms", "--unused-timeout", "500ms"},
            of_nodes),
        job_(cluster_) {}

  void SetUp() override {
    ASSERT_TRUE(cluster_.running());
    ASSERT_EQ(job_.begin(), "");
    std::printf("seed %llu, %llu inputs; TERN_SEED repeats the choices\n",
                static_cast<unsigned long long>(seed_), static_cast<unsigned long long>(inputs_));
  }

  std::int64_t rss() { return cluster_[0].ask("status").value("rss_bytes", std::int64_t{0}); }

  void feed(SocketFuzzer& fuzzer, std::uint64_t inputs) {
    const std::uint64_t enough = taken_ + inputs;
    while (taken_ < enough && fuzzer.problem().empty()) {
      taken_ += fuzzer.round();
      ++rounds_;
      // A dead daemon takes nothing; its log says why.
      if (rounds_ % 64 == 0 && cluster_[0].process().wait_exit(std::chrono::milliseconds(0))) {
        FAIL() << "the daemon ended after " << taken_ << " inputs";
      }
    }
    ASSERT_EQ(fuzzer.problem(), "");
  }

  // The job and the first tenth bring the daemon to what it keeps; from there on it does not grow.
  void run(std::unique_ptr<SocketFuzzer> fuzzer, const std::vector<std::string>& counters) {
    const Holdings before = cluster_[0].holdings();
    std::vector<std::int64_t> counted;
    counted.reserve(counters.size());
    for (const auto& name : counters) counted.push_back(cluster_[0].counter(name));
    ASSERT_TRUE(eventually([&] { return job_.ops() >= 400; }));
    const auto began = std::chrono::steady_clock::now();
    ASSERT_NO_FATAL_FAILURE(feed(*fuzzer, inputs_ / 10));
    const std::int64_t rss_before = rss();
    ASSERT_NO_FATAL_FAILURE(feed(*fuzzer, inputs_ - inputs_ / 10));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    fuzzer.reset();
    EXPECT_EQ(job_.stop(), "");
    EXPECT_TRUE(cluster_.running());
    const auto has_let_go = [&] {
      const Holdings now = cluster_[0].holdings();
      return now.segments <= before.segments && now.descriptors <= before.descriptors + kMoreLinks;
    };
    EXPECT_TRUE(eventually(has_let_go))
        << cluster_[0].holdings().descriptors << " descriptors, before " << before.descriptors
        << ": " << cluster_[0].ask("peers").dump(1);
    const std::int64_t growth = rss() - rss_before;
    EXPECT_LT(growth, kGrowthBytes);
    std::printf(
        "%llu inputs on %llu connections, %.0f a second; %llu operations beside them; "
        "memory %+lld KiB, %zu descriptors (%zu before)\n",
        static_cast<unsigned long long>(taken_), static_cast<unsigned long long>(rounds_),
        static_cast<double>(taken_) / took.count(), static_cast<unsigned long long>(job_.ops()),
        static_cast<long long>(growth / 1024), cluster_[0].holdings().descriptors,
        before.descriptors);
    for (std::size_t i = 0; i < counters.size(); ++i) {
      const std::int64_t grown = cluster_[0].counter(counters[i]) - counted[i];
      EXPECT_GT(grown, 0) << counters[i];
      std::printf("  %s %+lld\n", counters[i].c_str(), static_cast<long long>(grown));
    }
    EXPECT_GT(job_.ops(), 0u);
    EXPECT_TRUE(cluster_[0].ask("status").is_object());
  }

  const std::uint64_t inputs_ = tests::number_of("TERN_FUZZ_INPUTS", 50'000);
  const std::uint64_t seed_ = tests::number_of("TERN_SEED", std::random_device{}());
  std::uint64_t taken_ = 0, rounds_ = 0;
  Cluster cluster_;
  Job job_;
};

TEST_F(FuzzCampaign, ControlSocket) {
  run(std::make_unique<ControlFuzzer>(cluster_[0], seed_), {});
}

TEST_F(FuzzCampaign, ClientSocket) {
  run(std::make_unique<ClientFuzzer>(cluster_[0], seed_, job_.id()),
      {"clients_refused", "bad_packets", "bad_entries", "joins_refused"});
}

TEST_F(FuzzCampaign, PeerPort) {
  run(std::make_unique<PeerFuzzer>(cluster_[0], seed_, job_.uid()),
      {"hellos_refused", "bad_control_messages", "unknown_group_frames"});
}

// The same from one who has a certificate of the cluster: before TLS, and inside it.
class SecureFuzzCampaign : private PeerProofs, public FuzzCampaign {
 protected:
  SecureFuzzCampaign()
      : FuzzCampaign({certified("one", "127.0.0.1"), certified("one", "127.0.0.1")}) {
    const Options own = certified("one", "stranger");
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(tls.get(), own[5].c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(tls.get(), own[7].c_str(), SSL_FILETYPE_PEM), 1);
  }

  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> tls{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
};

TEST_F(SecureFuzzCampaign, PeerPort) {
  run(std::make_unique<PeerFuzzer>(cluster_[0], seed_, job_.uid(), tls.get()),
      {"hellos_refused", "peers_not_trusted", "bad_control_messages", "unknown_group_frames"});
}

}  // namespace
}  // namespace tern::e2e
