#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace tern::daemon {

// Whether a holder who has `mine` of `most` places, of which `all` are taken, may have one more:
// while fewer are its own than are free. So k holders who take what they can leave one part in
// k + 1 to others. (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
// switches", IEEE/ACM Transactions on Networking 6(2), 1998; their alpha is 1.)
constexpr bool leaves_room(std::size_t mine, std::size_t all, std::size_t most) noexcept {
  return all < most && mine < most - all;
}

// Places that strangers take, each of whom is known by a text such as an address.
class SharedPlaces {
 public:
  struct Bounds {
    std::size_t of_all, of_one;
  };

  // A place, until it is destroyed. REQUIRES: the places outlive it.
  class Held {
   public:
    Held(Held&& other) noexcept
        : places_(std::exchange(other.places_, nullptr)), holder_(std::move(other.holder_)) {}
    Held& operator=(Held&& other) noexcept {
      if (this != &other) {
        release();
        places_ = std::exchange(other.places_, nullptr);
        holder_ = std::move(other.holder_);
      }
      return *this;
    }
    ~Held() { release(); }

   private:
    friend class SharedPlaces;
    Held(SharedPlaces& places, std::string holder) : places_(&places), holder_(std::move(holder)) {}
    void release() {
      if (SharedPlaces* const places = std::exchange(places_, nullptr)) places->release(holder_);
    }

    SharedPlaces* places_;
    std::string holder_;
  };

  explicit SharedPlaces(Bounds bounds) : bounds_(bounds) {}
  SharedPlaces(const SharedPlaces&) = delete;
  SharedPlaces& operator=(const SharedPlaces&) = delete;

  // None: the holder has as many as it may, or there are too few for others.
  std::optional<Held> take(const std::string& holder) {
    const std::size_t mine = of(holder);
    if (mine >= bounds_.of_one || !leaves_room(mine, all_, bounds_.of_all)) return std::nullopt;
    ++taken_[holder];
    ++all_;
    return Held(*this, holder);
  }

  std::size_t all() const noexcept { return all_; }
  std::size_t of(const std::string& holder) const {
    const auto found = taken_.find(holder);
    return found == taken_.end() ? 0 : found->second;
  }

 private:
  void release(const std::string& holder) {
    const auto found = taken_.find(holder);
    if (--found->second == 0) taken_.erase(found);
    --all_;
  }

  Bounds bounds_;
  std::map<std::string, std::size_t> taken_;  // those who hold any
  std::size_t all_ = 0;
};

}  // namespace tern::daemon
