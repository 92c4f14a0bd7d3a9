#include "daemon/conductor/conductor.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/time_slice.h"
#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kIdleNs = 1'000'000'000;
constexpr std::uint64_t kBacklogNs = 1'000'000;

// The step of a message between conductors. A peer may call it anything.
const char* step_of(std::string_view type) {
  constexpr std::string_view kPrefix = "message ";
  constexpr std::array kSteps{"message about",   "message challenge", "message divided",
                              "message end",     "message ended",     "message join",
                              "message left",    "message members",   "message proof",
                              "message ready",   "message refused",   "message start",
                              "message waiting", "message withdraw",  "message withdrawn"};
  for (const char* step : kSteps) {
    if (std::string_view(step).substr(kPrefix.size()) == type) return step;
  }
  return "message of an unknown type";
}

}  // namespace

Conductor::Conductor(ConductorSettings settings, const Surroundings& around)
    : settings_(std::move(settings)),
      clock_(around.clock),
      lanes_(around.lanes),
      tuning_(around.tuning),
      turns_(clock_, counters_, around.lanes),
      answers_(around.clients),
      commands_(around.lanes, around.wake_lane),
      links_({around.transport, clock_, settings_.link, around.self}, *this),
      post_(links_, around.self),
      sealing_(around.disposal.by()),
      reading_(around.disposal.by()),
      freeing_(around.disposal.by()),
      log_(clock_),
      outlets_{clock_,          counters_, answers_, commands_, post_,
               around.disposal, sealing_,  reading_, log_},
      coordinator_(post_, clock_),
      refusals_(outlets_),
      clients_(settings_, outlets_),
      joins_(settings_, outlets_, clients_, refusals_),
      flights_(settings_.flight_directory, {clock_, log_, around.writing}),
      groups_(outlets_, flights_, freeing_),
      drain_(clock_, around.self, {clients_, joins_, groups_, coordinator_}),
      kept_(settings_, clock_, around.disposal),
      quotas_(settings_, {clients_, joins_, groups_, kept_, around.disposal, sealing_}),
      regions_(outlets_, clients_, quotas_),
      devices_(outlets_),
      epochs_(settings_, outlets_, {clients_, joins_, groups_, quotas_, tuning_}),
      splits_(outlets_, {clients_, joins_, groups_, drain_, quotas_, refusals_}),
      tensors_(settings_, outlets_, {groups_, quotas_, kept_, refusals_, tuning_}),
      moves_(outlets_, clients_, groups_),
      reports_({outlets_, clients_, joins_, groups_, tensors_, links_, tuning_, turns_}, lanes_,
               around.transport.name()) {}

void Conductor::attach(ConductorCounters& counters, const std::function<nlohmann::json()>& about) {
  counters_.move_to(counters);
  turns_.count_in(counters);
  reports_.set_about(about);
  links_.set_about(about);
}

int Conductor::do_work() {
  using Messages = ControlLinks::Messages;
  turns_.step("letters");
  int work = post_.dispatch(TimeSlice(clock_, kSliceNs));
  turns_.step("links");
  work += links_.do_work(post_.has_letters() ? Messages::kept_waiting : Messages::read);
  work += post_.deliver(TimeSlice(clock_, kSliceNs), [this](const nlohmann::json& message) {
    on_control_message(kSelf, message);
  });
  turns_.step("settle clients");
  work += settle_clients();
  work += drain_events();
  turns_.step("forget tensors");
  const TimeSlice for_tensors(clock_, kSliceNs);
  work += tensors_.release_left(for_tensors) + tensors_.forget_groups(for_tensors);
  turns_.step("flight record");
  // One file in a turn: a lost peer may end many groups at once.
  const auto writes = [this](const auto& one) { return flights_.write_if_due(*one.second); };
  const auto& groups = groups_.all();
  flights_.tell_problems();
  if (flights_.write_closed() || std::any_of(groups.begin(), groups.end(), writes)) ++work;
  if (tuning_ != nullptr) {
    turns_.step("tuning");
    work += tuning_->do_work();
    if (std::exchange(weighed_by_, tuning_->policy_version()) != tuning_->policy_version()) {
      groups_.weigh(tuning_->policy());
    }
  }
  turns_.step("commands");
  work += commands_.flush();
  // A lost link, or what is late, may be news for the ranks of very many groups.
  if (!post_.has_room()) return work;
  const TimeSlice for_lost(clock_, kSliceNs);
  turns_.step("lost epochs");
  work += coordinator_.end_lost(for_lost);
  turns_.step("waiting joins");
  const TimeSlice for_joins(clock_, kSliceNs);
  work += coordinator_.tell_changed(for_joins);
  turns_.step("children of splits");
  work += coordinator_.begin_children(for_joins);
  turns_.step("lost joins");
  work += joins_.settle(for_lost);
  turns_.step("lost groups");
  work += groups_.settle(for_lost);
  turns_.step("timers");
  forget_unused();
  return work;
}

// At once after a join has failed: a user must not pile up links by joins that go nowhere.
void Conductor::forget_unused() {
  const std::uint64_t now = clock_.now_ns();
  if (!joins_.take_failed() && now < forget_due_ns_) return;
  const TimeSlice slice(clock_, kSliceNs);
  const bool are_all = coordinator_.expire(slice) && coordinator_.expire_challengers(slice) &&
                       kept_.expire(now, slice);
  forget_due_ns_ = are_all ? now + kIdleNs : now;
  std::set<LinkRef> in_use;
  coordinator_.add_links(in_use);
  joins_.add_links(in_use);
  groups_.add_links(in_use);
  links_.close_unused(in_use);
  log_.tell_left_out();
}

std::uint64_t Conductor::next_deadline_ns() const {
  const std::uint64_t now = clock_.now_ns();
  if (post_.has_mail() || post_.has_letters() || coordinator_.has_lost() ||
      coordinator_.has_children_to_begin() || tensors_.has_groups_to_forget() ||
      now >= forget_due_ns_) {
    return now;
  }
  if (commands_.has_backlog()) return now + kBacklogNs;
  if (tensors_.has_to_release()) return now;
  std::uint64_t deadline = std::min(now + kIdleNs, links_.next_deadline_ns());
  deadline = std::min(deadline, coordinator_.next_deadline_ns());
  if (tuning_ != nullptr) deadline = std::min(deadline, tuning_->next_deadline_ns());
  deadline = std::min(deadline, joins_.next_deadline_ns());
  deadline = std::min(deadline, clients_.next_deadline_ns());
  deadline = std::min(deadline, regions_.next_deadline_ns());
  deadline = std::min(deadline, drain_.next_deadline_ns());
  return std::min(deadline, groups_.next_deadline_ns());
}

// ---- Links --------------------------------------------------------------------------------------

void Conductor::on_control_message(LinkRef from, const nlohmann::json& message) {
  const std::string type = text_of(message, "t");
  turns_.step(step_of(type));
  if (type == "about") return links_.on_about(from, message);
  if (coordinator_.on_message(from, message) || joins_.on_message(from, message) ||
      epochs_.on_message(from, message) || splits_.on_message(from, message)) {
    return;
  }
  ++counters_->bad_control_messages;
  refusals_.log_peer(links_.name_of(from), "a control message that nobody understands was ignored");
}

void Conductor::on_control_link_lost(LinkRef link, Errc reason, bool worked,
                                     const std::string& why) {
  turns_.step("on_control_link_lost");
  const bool is_distrust = reason == Errc::permission_denied;
  const bool is_refusal = is_distrust || reason == Errc::version_mismatch;
  if (is_distrust) {
    ++counters_->peers_not_trusted;
    const std::string peer = links_.name_of(link);
    log_about({.peer = peer}, spdlog::level::warn, "no link to a peer: {}", why);
  }
  coordinator_.on_link_lost(link, why);
  joins_.on_link_lost(link, worked, is_refusal ? reason : Errc::ok, why);
  groups_.lose_coordinator(link, why);
}

void Conductor::on_control_breach(const std::string& peer, const std::string& text) {
  refusals_.control_breach(peer, text);
}

void Conductor::on_refused(const std::string& from, Errc reason, const char* text) {
  refusals_.stranger(from, reason, text);
}

void Conductor::on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader&,
                            const wire::HelloBody& hello) {
  turns_.step("on_incoming");
  if (hello.lane == wire::kConductorLane) {
    if (!links_.adopt(std::move(incoming), hello))
      refusals_.hello(hello, "its source has too many links, or there are too few left for others");
  } else if (hello.lane < lanes_.size()) {
    commands_.send(hello.lane, command::AdoptConnection{incoming.release(), hello});
  } else {
    // Closed: a group never uses more lanes than its nodes have.
    refusals_.hello(hello, "there is no lane " + std::to_string(hello.lane));
  }
}

// ---- The end of the daemon ----------------------------------------------------------------------

void Conductor::end_all(Errc code, const std::string& text) {
  joins_.end_all(code, text);
  groups_.end_all(code, text);
}

void Conductor::say_goodbye() {
  links_.say_goodbye();
  commands_.send_to_all(command::Goodbye{});
}

}  // namespace tern::daemon
