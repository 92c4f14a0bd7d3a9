#pragma once

// A transport that remembers where to it was asked to connect, and for whom.

#include <memory>
#include <utility>
#include <vector>

#include "net/transport.h"

namespace tern::net {

class AskedTransport final : public Transport {
 public:
  explicit AskedTransport(Transport& inner) : inner_(inner) {}
  const char* name() const noexcept override { return inner_.name(); }
  std::unique_ptr<Connection> connect(const Endpoint& endpoint, ConnectionSink& sink) override {
    connected.push_back(endpoint);
    return inner_.connect(endpoint, sink);
  }
  void hasten(const Endpoint& endpoint) override { hastened.push_back(endpoint); }
  std::unique_ptr<Connection> adopt(std::unique_ptr<Incoming> incoming,
                                    ConnectionSink& sink) override {
    return inner_.adopt(std::move(incoming), sink);
  }
  int poll() override { return inner_.poll(); }

  std::vector<Endpoint> connected, hastened;

 private:
  Transport& inner_;
};

}  // namespace tern::net
