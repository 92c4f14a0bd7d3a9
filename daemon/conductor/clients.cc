#include "daemon/conductor/clients.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <utility>

#include "daemon/service/nudges.h"
#include "daemon/tuning/replay_reading.h"
#include "shm/absent_pages.h"
#include "shm/wakeup.h"

namespace tern::daemon {
namespace {

// How often it is looked whether a seal is there, which mostly takes microseconds, or a log.
constexpr std::uint64_t kLookNs = 1'000'000;
// Requests of one client that wait. A library may be asked by many threads at once.
constexpr std::size_t kMaxHeld = 256;

// Beside ASCII's letters and digits.
constexpr std::string_view kLabelMarks = "._-:@+=/";

// Labels are in logs, tables, paths of policies and keys: nothing in them is to be escaped.
Status check_label(std::string_view label) {
  for (const char c : label) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter || (c >= '0' && c <= '9') || kLabelMarks.find(c) != std::string_view::npos) {
      continue;
    }
    return fail(
        Errc::invalid_argument,
        fmt::format("the job's label has the byte 0x{:02x}; it may have letters (a-z, A-Z), "
                    "digits and {}",
                    static_cast<unsigned char>(c), kLabelMarks));
  }
  return {};
}

// To free a filled arena takes a fifth of a second for each GiB.
template <typename Memory>
Disposal::Some free_in_parts(std::unique_ptr<Memory> memory, shm::Segment& segment) {
  return [held = std::shared_ptr<Memory>(std::move(memory)), &segment]() mutable {
    if (segment.unmap_some()) return true;
    const Nudges nudges;  // sockets are among what is closed
    held.reset();
    return false;
  };
}

}  // namespace

Disposal::Some seal_later(const std::shared_ptr<Fd>& file,
                          const std::shared_ptr<std::atomic<Sealing>>& outcome) {
  return [left = std::weak_ptr<Fd>(file), outcome] {
    const std::shared_ptr<Fd> held = left.lock();
    if (!held) return false;
    const bool sealed = shm::seal(*held).has_value();
    outcome->store(sealed ? Sealing::done : Sealing::refused, std::memory_order_release);
    return false;
  };
}

Clients::Clients(const ConductorSettings& settings, const Outlets& outlets)
    : settings_(settings), outlets_(outlets) {
  tell_who_pays(shm::can_leave_absent());
}

void Clients::tell_who_pays(const Status& left_absent) {
  if (left_absent || said_who_pays_) return;
  said_who_pays_ = true;
  spdlog::warn("pages that a client submits and has not touched are charged to this daemon: {}",
               left_absent.error().text);
}

// At the end of the daemon.
Clients::~Clients() {
  for (auto& [id, client] : clients_) {
    for (auto& [number, region] : client->regions) dispose(*client, std::move(region));
    if (client->memory) {
      shm::Segment& segment = client->memory->segment;
      outlets_.disposal.take(account_of(*client),
                             free_in_parts(std::move(client->memory), segment));
    }
  }
}

Client* Clients::find(std::uint64_t id) const {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Client> Clients::make(std::uint64_t id, shm::PeerCredentials credentials) const {
  auto client = std::make_unique<Client>();
  client->id = id;
  client->credentials = std::move(credentials);
  client->connected_ns = outlets_.clock.now_ns();
  return client;
}

void Clients::add(std::unique_ptr<Client> client) {
  const std::uint64_t id = client->id;
  clients_[id] = std::move(client);
}

// ---- The hello ----------------------------------------------------------------------------------

Status Clients::check_hello(const shm::HelloPacket& packet) const {
  if (packet.abi_min > wire::kShmAbi || packet.abi_max < wire::kShmAbi) {
    return fail(Errc::version_mismatch, "the library speaks shared-memory ABI " +
                                            std::to_string(packet.abi_min) + " to " +
                                            std::to_string(packet.abi_max) + ", the daemon " +
                                            std::to_string(wire::kShmAbi));
  }
  if (!shm::terminated(packet.job) || packet.job[0] == '\0') {
    return fail(Errc::invalid_argument, "the job's label must have 1 to 63 bytes");
  }
  return check_label(packet.job);
}

std::string Clients::access_problem(const shm::PeerCredentials& credentials) const {
  const Admission& admission = settings_.admission;
  if (admission.allowed_uids.empty() && admission.allowed_gids.empty()) return "";
  const auto has = [](const auto& list, std::uint32_t id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  if (has(admission.allowed_uids, credentials.uid) ||
      has(admission.allowed_gids, credentials.gid)) {
    return "";
  }
  for (const gid_t group : credentials.groups) {
    if (has(admission.allowed_gids, group)) return "";
  }
  return "uid " + std::to_string(credentials.uid) +
         " is not in allowed_uids or allowed_gids of the daemon's configuration";
}

// The client's end of the notifying pair is closed here once the welcome has passed it on.
Status Clients::open(Client& client, const shm::HelloPacket& packet) {
  const std::uint32_t lane_count = outlets_.lanes.lane_count();
  auto segment = shm::Segment::create(lane_count, packet.arena_bytes,
                                      static_cast<std::uint32_t>(settings_.spin_ns));
  if (!segment) return tl::unexpected(segment.error());
  tell_who_pays(segment->leave_absent_pages());
  auto notify = shm::make_notify_pair();
  if (!notify) return tl::unexpected(notify.error());
  auto memory = std::make_unique<ClientMemory>();
  memory->id = client.id;
  memory->segment = std::move(*segment);
  memory->notify = std::move(notify->first);
  std::vector<int> descriptors{memory->segment.fd(), notify->second.get()};
  for (std::uint32_t lane = 0; lane < lane_count; ++lane) {
    auto eventfd = shm::make_eventfd();
    if (!eventfd) return tl::unexpected(eventfd.error());
    Fd watched = duplicate(eventfd->get());
    if (!watched) return fail_errno(Errc::io_error, "the daemon is out of descriptors", errno);
    memory->eventfds.push_back(std::move(*eventfd));
    memory->watched.push_back(std::move(watched));
    descriptors.push_back(memory->eventfds.back().get());
  }
  client.job = packet.job;
  client.arena_bytes = packet.arena_bytes;
  client.memory = std::move(memory);
  ++outlets_.counters->clients_accepted;
  auto welcome =
      shm::make_packet<shm::WelcomePacket>(shm::PacketKind::welcome, packet.header.request);
  welcome.abi = wire::kShmAbi;
  welcome.lane_count = static_cast<std::uint16_t>(lane_count);
  welcome.features = shm::kFeatureSplit | shm::kFeatureProgress | shm::kFeatureRegions |
                     shm::kFeatureSharesDown | shm::kFeaturePassProgress | shm::kFeatureBlocks |
                     shm::kFeatureDevices | shm::kFeatureTunedBlocks;
  welcome.segment_bytes = client.memory->segment.segment_bytes();
  welcome.eager_bytes = settings_.ops.eager_bytes;
  outlets_.answers.send(client.id, welcome, descriptors);
  outlets_.log.write(line_about(client), "client {} connected: pid {}, uid {}, job {}", client.id,
                     client.credentials.pid, client.credentials.uid, client.job);
  return {};
}

bool Clients::admit(Client& client) {
  if (client.is_admitted) return true;
  if (!client.sealing) {
    client.sealing = std::make_shared<std::atomic<Sealing>>(Sealing::under_way);
    waiting_.push_back(client.id);
    client.file = std::make_shared<Fd>(client.memory->segment.take_fd());
    outlets_.sealing.take(account_of(client), seal_later(client.file, client.sealing));
  }
  if (client.sealing->load(std::memory_order_acquire) != Sealing::done) return false;
  client.is_admitted = true;
  client.file.reset();  // mapped, so that nothing is freed here
  outlets_.lanes.send_to_all(command::AddClient{client.memory.get()});
  say_whether_to_spin();
  return true;
}

bool Clients::hold(Client& client, std::span<const std::byte> request) {
  if (client.held.size() >= kMaxHeld) return false;
  client.held.emplace_back(request.begin(), request.end());
  return true;
}

void Clients::hold_for_log(Client& client, std::span<const std::byte> request) {
  client.held.emplace_back(request.begin(), request.end());
  waiting_.push_back(client.id);
}

bool Clients::has_help(const Client& client) {
  return client.sealing->load(std::memory_order_acquire) == Sealing::under_way ||
         (client.reading && !client.reading->is_done());
}

Client* Clients::take_ready() {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    Client* const client = find(*at);
    if (client != nullptr && has_help(*client)) {
      ++at;
      continue;
    }
    at = waiting_.erase(at);
    if (client == nullptr || client->is_going()) continue;
    if (!client->is_admitted || !client->held.empty()) return client;
  }
  return nullptr;
}

void Clients::hold_rest(Client& client, std::vector<std::vector<std::byte>> requests) {
  client.held.insert(client.held.end(), std::make_move_iterator(requests.begin()),
                     std::make_move_iterator(requests.end()));
  waiting_.push_back(client.id);
}

std::uint32_t Clients::account_of(const Client& client) const {
  return settings_.sub_users.owner_of(client.credentials.uid);
}

UserLog::Line Clients::line_about(const Client& client) const {
  return {.topic = LogTopic::clients, .account = account_of(client), .fields = {.job = client.job}};
}

void Clients::say_whether_to_spin() {
  std::size_t count = outlets_.lanes.lane_count();
  for (const auto& [id, client] : clients_) count += client->memory ? 1 : 0;
  for (auto& [id, client] : clients_) {
    if (client->is_admitted) client->memory->segment.set_cores_are_few(settings_.cores <= count);
  }
}

std::vector<Client*> Clients::silent() const {
  const std::uint64_t now = outlets_.clock.now_ns();
  std::vector<Client*> silent;
  for (const auto& [id, client] : clients_) {
    if (client->memory || client->is_going()) continue;
    if (now >= client->connected_ns + settings_.handshake_timeout_ns) {
      silent.push_back(client.get());
    }
  }
  return silent;
}

std::uint64_t Clients::next_deadline_ns() const {
  std::uint64_t deadline = ~std::uint64_t{0};
  if (!waiting_.empty()) deadline = outlets_.clock.now_ns() + kLookNs;
  for (const auto& [id, client] : clients_) {
    if (client->memory || client->is_going()) continue;
    deadline = std::min(deadline, client->connected_ns + settings_.handshake_timeout_ns);
  }
  return deadline;
}

// ---- The end of a client ------------------------------------------------------------------------

void Clients::let_go(Client& client, const char* why) {
  if (!client.memory) {
    outlets_.answers.disconnect(client.id);
    clients_.erase(client.id);
    return;
  }
  outlets_.log.write(line_about(client), "client {} (pid {}, job {}) is gone: {}", client.id,
                     client.credentials.pid, client.job, why);
  if (!client.is_admitted) return forget(clients_.find(client.id));
  outlets_.lanes.send_to_all(command::DropClient{client.memory.get()});
}

void Clients::dispose(Client& client, std::unique_ptr<ClientRegion> region) {
  shm::Segment& segment = region->memory.segment;
  const std::uint64_t bytes = segment.arena_bytes();
  client.region_bytes -= bytes;
  outlets_.disposal.take(account_of(client), free_in_parts(std::move(region), segment), bytes);
}

void Clients::on_dropped(const ClientMemory& memory) {
  const auto found = clients_.find(memory.id);
  if (found == clients_.end() || ++found->second->lanes_dropped < outlets_.lanes.lane_count()) {
    return;
  }
  forget(found);
}

void Clients::forget(Map::iterator gone) {
  Client& client = *gone->second;
  if (client.goodbye && client.presence != ClientPresence::closed) {
    outlets_.answers.done(client.id, *client.goodbye, Errc::ok, "");
  }
  outlets_.answers.disconnect(client.id);
  for (auto& [number, region] : client.regions) dispose(client, std::move(region));
  shm::Segment& segment = client.memory->segment;
  outlets_.disposal.take(account_of(client), free_in_parts(std::move(client.memory), segment),
                         client.arena_bytes);
  if (client.file) outlets_.disposal.take_whole(account_of(client), std::move(client.file));
  if (client.reading) outlets_.reading.take_whole(account_of(client), std::move(client.reading));
  clients_.erase(gone);
  say_whether_to_spin();
}

}  // namespace tern::daemon
