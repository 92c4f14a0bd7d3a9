#include "codec/device/emulation/machine.h"

#include <algorithm>

#include "base/check.h"
#include "codec/device/emulation/finding.h"
#include "codec/device/emulation/memory.h"

namespace tern::codec::device::emulation {
namespace {

constexpr std::uint32_t kMostThreads = 1024;

thread_local Machine* running_machine = nullptr;

Stacks& stacks() {
  static thread_local Stacks made(kMostThreads);
  return made;
}

}  // namespace

Machine::Machine(const LaunchShape& shape, const LaunchOptions& options, LaunchReport& report)
    : shape_(shape),
      options_(options),
      report_(report),
      stacks_(stacks()),
      lanes_(std::make_unique<Lane[]>(shape.threads)),
      scheduler_(options.schedule, shape.threads / kWarpLanes),
      meter_(shape.threads),
      warp_epochs_(shape.threads / kWarpLanes) {
  TERN_CHECK(shape.threads % kWarpLanes == 0 && shape.threads <= kMostThreads);
}

Machine& Machine::current() noexcept { return *running_machine; }

void Machine::start(std::uint32_t block, std::uint32_t first_epoch) {
  block_ = block;
  first_epoch_ = first_epoch;
  epoch_ = first_epoch;
  waiting_ = 0;
  done_ = 0;
  shared_.clear();
  std::fill(warp_epochs_.begin(), warp_epochs_.end(), 0u);
  for (std::uint32_t i = 0; i < shape_.threads; ++i) {
    lanes_[i].fibre.prepare(stacks_.stack(i), Stacks::kBytes, &Machine::enter, this);
    set_state(i, State::ready);
  }
}

void Machine::run(std::uint32_t block, std::uint32_t first_epoch,
                  const std::function<void()>& kernel) {
  start(block, first_epoch);
  kernel_ = &kernel;
  Machine* const before = running_machine;
  running_machine = this;
  running_ = scheduler_.next();
  program_.switch_to(lanes_[running_].fibre);
  running_machine = before;
  if (report_.finding.empty() && done_ != shape_.threads) report_.finding = stuck();
  report_.shared_bytes = std::max(report_.shared_bytes, shared_.bytes());
  if (options_.meter_traffic) meter_.settle(report_.traffic);
}

void Machine::enter(void* machine) {
  auto& self = *static_cast<Machine*>(machine);
  try {
    (*self.kernel_)();
  } catch (const Finding& finding) {
    self.report_.finding = finding.text;
  }
  // Outside of the handler, because nobody comes back to leave it.
  if (!self.report_.finding.empty()) self.lanes_[self.running_].fibre.switch_to(self.program_);
  ++self.done_;
  self.set_state(self.running_, State::done);
  self.go_on();
}

void Machine::set_state(std::uint32_t thread, State state) {
  lanes_[thread].state = state;
  scheduler_.set_ready(thread, state == State::ready);
}

void Machine::wait(State state, const Site& site) {
  lanes_[running_].site = site;
  set_state(running_, state);
}

// Whoever is next runs; this returns when it is this thread's turn again.
void Machine::go_on() {
  Lane& self = lanes_[running_];
  const std::uint32_t next = scheduler_.next();
  if (next == Scheduler::kNobody || ++switches_ > options_.most_switches) {
    self.fibre.switch_to(program_);
    return;
  }
  if (next == running_) return;
  running_ = next;
  self.fibre.switch_to(lanes_[next].fibre);
}

bool Machine::is_removed(const Site& site) {
  auto& sites = report_.barriers;
  if (std::find(sites.begin(), sites.end(), site) == sites.end()) sites.push_back(site);
  return options_.without_barrier.has_value() && *options_.without_barrier == site;
}

void Machine::barrier(const Site& site) {
  if (is_removed(site)) return;
  wait(State::at_barrier, site);
  ++waiting_;
  if (waiting_ == shape_.threads) release_barrier();
  go_on();
}

void Machine::release_barrier() {
  for (std::uint32_t i = 0; i < shape_.threads; ++i) {
    if (!(lanes_[i].site == lanes_[running_].site)) {
      report("threads meet at different barriers, also at " + place_text(lanes_[i].site),
             lanes_[running_].site);
    }
  }
  waiting_ = 0;
  ++epoch_;
  scheduler_.shuffle();
  for (std::uint32_t i = 0; i < shape_.threads; ++i) set_state(i, State::ready);
}

std::uint64_t Machine::exchange(const Exchange& what, const Site& site) {
  if (what.kind == Exchange::Kind::barrier && is_removed(site)) return 0;
  const std::uint32_t lane = running_ % kWarpLanes;
  if ((what.mask >> lane & 1u) == 0) report("a lane is not in its own mask", site);
  lanes_[running_].exchange = what;
  wait(State::at_exchange, site);
  complete(running_ / kWarpLanes, what.mask);
  const std::uint32_t self = running_;
  go_on();
  return lanes_[self].result;
}

// Gives the results if all of the mask have come.
void Machine::complete(std::uint32_t warp, std::uint32_t mask) {
  Lane* const lanes = &lanes_[std::size_t{warp} * kWarpLanes];
  const Lane& self = lanes_[running_];
  std::uint64_t ballot = 0;
  std::uint64_t largest = 0;
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<std::uint32_t>(std::countr_zero(rest));
    const Lane& other = lanes[i];
    if (other.state != State::at_exchange) return;
    if (other.exchange.mask != mask || other.exchange.kind != self.exchange.kind ||
        !(other.site == self.site)) {
      report("lanes of a warp meet in different exchanges, also at " + place_text(other.site),
             self.site);
    }
    ballot |= other.exchange.value != 0 ? std::uint64_t{1} << i : 0;
    largest = std::max(largest, other.exchange.value);
  }
  if (self.exchange.kind == Exchange::Kind::barrier) ++warp_epochs_[warp];
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    Lane& other = lanes[std::countr_zero(rest)];
    const Exchange& asked = other.exchange;
    if (asked.kind == Exchange::Kind::take) {
      if ((mask >> asked.source & 1u) == 0)
        report("takes from a lane that is not there", self.site);
      other.result = lanes[asked.source].exchange.value;
    } else {
      other.result = asked.kind == Exchange::Kind::ballot ? ballot : largest;
    }
  }
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    set_state(warp * kWarpLanes + static_cast<std::uint32_t>(std::countr_zero(rest)), State::ready);
  }
}

std::string Machine::stuck() const {
  if (switches_ > options_.most_switches) return "the launch does not end";
  for (std::uint32_t i = 0; i < shape_.threads; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.state == State::done) continue;
    return place_text(lane.site) + ": thread " + std::to_string(i) + " of block " +
           std::to_string(block_) + " waits for threads that do not come";
  }
  return "the launch did not begin";
}

Moment Machine::now() const noexcept {
  const std::uint32_t warp = running_ / kWarpLanes;
  return {block_, static_cast<std::uint16_t>(warp),
          static_cast<std::uint16_t>(running_ % kWarpLanes), epoch_, warp_epochs_[warp]};
}

SharedArray& Machine::shared_array(std::size_t number, const SharedShape& shape, const Site& site) {
  SharedArray* const found = shared_.array(number, shape);
  if (found == nullptr) report("threads ask for different shared arrays", site);
  return *found;
}

void Machine::touch_shared(SharedArray& array, Touch touch, const Span& elements,
                           const Site& site) {
  array.watch.note({touch, now(), first_epoch_, site}, elements);
  if (!options_.meter_traffic) return;
  const std::size_t bytes = array.shape.element_bytes;
  meter_.note(running_, site,
              {false, touch != Touch::read, static_cast<std::uint16_t>(elements.count * bytes),
               array.offset + elements.begin * bytes});
}

void Machine::touch_global(const void* address, std::size_t bytes, Touch touch, const Site& site) {
  Allocation* const found = Allocation::find(address);
  if (found == nullptr) report("an address in no array of the device", site);
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - found->begin);
  const std::size_t alignment = std::min<std::size_t>(bytes, 16);
  if (std::has_single_bit(bytes) && reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    report("an address that is not aligned to the access", site);
  }
  const std::size_t first = offset / found->granule;
  const std::size_t end = (offset + bytes + found->granule - 1) / found->granule;
  found->watch.note({touch, now(), first_epoch_, site}, {first, end - first});
  if (!options_.meter_traffic) return;
  meter_.note(running_, site,
              {true, touch != Touch::read, static_cast<std::uint16_t>(bytes),
               reinterpret_cast<std::uintptr_t>(address)});
}

LaunchReport launch(const LaunchShape& shape, const LaunchOptions& options,
                    const std::function<void()>& kernel) {
  // Of all launches together, so that a cell tells an earlier one's touches.
  static std::uint32_t next_epoch = 1;
  LaunchReport report;
  Machine machine(shape, options, report);
  std::uint32_t last = next_epoch;
  for (const std::uint32_t block :
       Scheduler(options.schedule, shape.threads / kWarpLanes).blocks(shape.blocks)) {
    machine.run(block, next_epoch, kernel);
    last = std::max(last, machine.last_epoch());
    if (!report.finding.empty()) break;
  }
  next_epoch = last + 1;
  return report;
}

}  // namespace tern::codec::device::emulation
