#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>

#include "tests/e2e/socket_fuzzer.h"

namespace tern::e2e {
namespace {

using nlohmann::json;

constexpr std::size_t kHeld = 4;  // of the places that the daemon has for one user
constexpr std::size_t kJudgedBytes = 4096;

json request(Mutator& mutator) {
  static const std::vector<json> kRequests{
      {{"verb", "status"}},
      {{"verb", "host"}},
      {{"verb", "clients"}},
      {{"verb", "peers"}},
      {{"verb", "groups"}},
      {{"verb", "tensors"}},
      {{"verb", "counters"}},
      {{"verb", "tuner"}},
      {{"verb", "explain"}, {"args", {{"tensor", "stream0"}}}},
      {{"verb", "policy"}},
      {{"verb", "policy"}, {"args", {{"set", "tensor=stream* level=lossless"}}}},
      {{"verb", "trace"}, {"args", {{"action", "start"}}}},
      {{"verb", "trace"}, {"args", {{"action", "stop"}}}},
      {{"verb", "trace"}, {"args", {{"action", "status"}}}},
      {{"verb", "trace"}, {"args", {{"action", "read"}, {"lane", 0}, {"from", 0}}}},
      {{"verb", "settings"}},
      {{"verb", "log"}},
      {{"verb", "version"}},
      {{"verb", "no such verb"}}};
  json chosen = mutator.pick(kRequests);
  chosen["v"] = 1;
  chosen["id"] = mutator.below(1000);
  return chosen;
}

}  // namespace

Fd ControlFuzzer::connect() const {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = daemon_.control_socket();
  std::copy(path.begin(), path.end(), address.sun_path);
  const void* const bytes = &address;
  if (::connect(fd.get(), static_cast<const sockaddr*>(bytes), sizeof(address)) != 0) fd.reset();
  return fd;
}

std::string ControlFuzzer::requests(std::uint64_t count) {
  std::string text;
  for (std::uint64_t i = 0; i < count; ++i) {
    json line = request(mutator_);
    // The envelope stays whole mostly: a line that is no request ends the connection.
    if (line.contains("args") && !mutator_.one_in(8)) {
      mutator_.change(line["args"]);
    } else if (mutator_.one_in(2)) {
      json args = json::object();
      mutator_.change(args);
      line["args"] = std::move(args);
    } else if (mutator_.one_in(8)) {
      mutator_.change(line);
    }
    text += line.dump(-1, ' ', mutator_.one_in(2), json::error_handler_t::replace) + "\n";
  }
  if (mutator_.one_in(2)) {
    const auto bytes = std::as_writable_bytes(std::span(text));
    mutator_.change(bytes.last(std::min<std::size_t>(bytes.size(), 200)));
  }
  return text;
}

// An answer is one line of JSON; a refusal says in words why.
void ControlFuzzer::judge(std::string_view answer) {
  if (answer.size() > kJudgedBytes || !problem_.empty()) return;
  const json read = json::parse(answer, nullptr, false);
  const bool sound = read.is_object() && read.contains("ok") && read["ok"].is_boolean();
  const bool clear =
      sound && (read["ok"] == true || !read["error"]["text"].get<std::string>().empty());
  if (!clear) problem_ = "an answer that says nothing: " + std::string(answer);
}

// Sends it all and reads to the end; how many lines were answered.
std::uint64_t ControlFuzzer::converse(const Fd& socket, std::string_view text) {
  std::string line;
  std::uint64_t answers = 0;
  std::array<char, 65'536> buffer;
  bool wrote = false;
  while (true) {
    pollfd entry{socket.get(), static_cast<short>(wrote ? POLLIN : POLLIN | POLLOUT), 0};
    if (::poll(&entry, 1, 60'000) <= 0) {
      problem_ = "a minute without an answer on the control socket";
      return answers;
    }
    if (!wrote && (entry.revents & POLLOUT) != 0) {
      const ssize_t count =
          ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
      wrote = text.empty() || (count < 0 && errno != EAGAIN);
      if (wrote) ::shutdown(socket.get(), SHUT_WR);
    }
    const ssize_t count = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return answers;
    std::string_view came(buffer.data(), count < 0 ? 0 : static_cast<std::size_t>(count));
    for (auto end = came.find('\n'); end != came.npos; end = came.find('\n')) {
      line += came.substr(0, end);
      came.remove_prefix(end + 1);
      judge(line);
      line.clear();
      ++answers;
    }
    line += came;
  }
}

std::uint64_t ControlFuzzer::round() {
  Fd socket = connect();
  if (!socket) {
    problem_ = "the control socket cannot be connected to";
    return 0;
  }
  const auto hold = [&](const std::string& text) {
    ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    held_.push_back(std::move(socket));
    if (held_.size() > kHeld) held_.pop_front();
    return std::uint64_t{1};
  };
  switch (mutator_.below(100)) {
    case 0: {
      const std::string text = requests(1);
      return hold(text.substr(0, text.size() / 2));
    }
    case 1:
      return hold(requests(16));
    case 2:
      return converse(socket, std::string(70'000, 'x'));
    case 3: {
      const auto noise = mutator_.noise(2000);
      std::string text(noise.size(), ' ');
      std::transform(noise.begin(), noise.end(), text.begin(),
                     [](std::byte one) { return static_cast<char>(one); });
      return converse(socket, text + "\n");
    }
    default:
      return converse(socket, requests(1 + mutator_.below(60)));
  }
}

}  // namespace tern::e2e
