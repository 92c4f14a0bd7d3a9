#include "daemon/conductor/regions.h"

#include <string>

namespace tern::daemon {
namespace {

// How often it is looked whether a seal is there, which mostly takes microseconds.
constexpr std::uint64_t kSealLookNs = 1'000'000;

}  // namespace

ClientRegion* Regions::find(std::uint64_t client, std::uint32_t region) const {
  Client* const owner = clients_.find(client);
  if (owner == nullptr || owner->is_going()) return nullptr;
  const auto found = owner->regions.find(region);
  return found == owner->regions.end() ? nullptr : found->second.get();
}

void Regions::create(Client& client, const shm::RegionCreatePacket& packet) {
  const auto refuse = [&](Errc code, const std::string& text) {
    outlets_.answers.done(client.id, packet.header.request, code, text);
  };
  if (const std::string why = quotas_.region_problem(client, packet.bytes); !why.empty()) {
    return refuse(Errc::quota_exceeded, why);
  }
  auto segment = shm::Segment::create_region(packet.bytes);
  if (!segment) return refuse(segment.error().code, segment.error().text);
  clients_.tell_who_pays(segment->leave_absent_pages());
  auto region = std::make_unique<ClientRegion>();
  region->memory.id = client.next_region++;
  region->memory.segment = std::move(*segment);
  const shm::Segment& made = region->memory.segment;
  auto reply = shm::make_packet<shm::RegionCreatedPacket>(shm::PacketKind::region_created,
                                                          packet.header.request);
  reply.region = region->memory.id;
  reply.bytes = made.arena_bytes();
  reply.segment_bytes = made.segment_bytes();
  client.region_bytes += made.arena_bytes();
  const int descriptors[] = {made.fd()};
  client.regions[reply.region] = std::move(region);
  outlets_.answers.send(client.id, reply, descriptors);
}

void Regions::open(Client& client, const shm::RegionPacket& packet) {
  ClientRegion* const region = find(client.id, packet.region);
  if (region == nullptr || region->sealing) {
    return outlets_.answers.done(client.id, packet.header.request, Errc::invalid_argument,
                                 "there is no such region, or it is open already");
  }
  region->request = packet.header.request;
  region->sealing = std::make_shared<std::atomic<Sealing>>(Sealing::under_way);
  region->file = std::make_shared<Fd>(region->memory.segment.take_fd());
  outlets_.sealing.take(clients_.account_of(client), seal_later(region->file, region->sealing));
  sealing_.emplace_back(client.id, packet.region);
}

int Regions::settle(std::vector<std::uint64_t>& bad) {
  return static_cast<int>(std::erase_if(sealing_, [&](const auto& one) {
    ClientRegion* const region = find(one.first, one.second);
    if (region == nullptr) return true;
    const Sealing outcome = region->sealing->load(std::memory_order_acquire);
    if (outcome == Sealing::under_way) return false;
    region->file.reset();  // mapped, so that nothing is freed here
    if (outcome == Sealing::refused) {
      bad.push_back(one.first);
      return true;
    }
    if (region->is_freeing) {
      dispose(*clients_.find(one.first), one.second);
      return true;
    }
    region->is_open = true;
    outlets_.lanes.send_to_all(command::AddRegion{one.first, &region->memory});
    outlets_.answers.done(one.first, region->request, Errc::ok, "");
    return true;
  }));
}

std::uint64_t Regions::next_deadline_ns() const {
  return sealing_.empty() ? ~std::uint64_t{0} : outlets_.clock.now_ns() + kSealLookNs;
}

// One that is being opened waits for its seal: the client may have given up on that.
void Regions::free(Client& client, const shm::RegionPacket& packet) {
  ClientRegion* const region = find(client.id, packet.region);
  if (region == nullptr || region->is_freeing) {
    return outlets_.answers.done(client.id, packet.header.request, Errc::invalid_argument,
                                 "there is no such region, or it is being freed");
  }
  const std::uint64_t opening = std::exchange(region->request, packet.header.request);
  if (!region->sealing) return dispose(client, packet.region);
  region->is_freeing = true;
  if (region->is_open) {
    return outlets_.lanes.send_to_all(command::DropRegion{client.id, packet.region});
  }
  outlets_.answers.done(client.id, opening, Errc::cancelled,
                        "the region was freed before it was open");
}

void Regions::on(const event::RegionDropped& event) {
  ClientRegion* const region = find(event.client, event.region);
  if (region == nullptr || ++region->lanes_dropped < outlets_.lanes.lane_count()) return;
  dispose(*clients_.find(event.client), event.region);
}

void Regions::dispose(Client& client, std::uint32_t number) {
  const auto region = client.regions.find(number);
  const std::uint64_t request = region->second->request;
  clients_.dispose(client, std::move(region->second));
  client.regions.erase(region);
  outlets_.answers.done(client.id, request, Errc::ok, "");
}

}  // namespace tern::daemon
