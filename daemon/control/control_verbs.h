#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/control/row_source.h"

namespace tern::daemon {

// Who connected, as the kernel says (SO_PEERCRED, SO_PEERGROUPS): as of connect(), and pid 0 from
// outside of our PID namespace.
struct Credentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary
};

// Answers the verbs of the control socket; docs/control-protocol.md has the shape of every result.
class ControlVerbs {
 public:
  virtual ~ControlVerbs() = default;

  // `args` is an object. The answer is sent as it is; the code of an error by its name. An unknown
  // verb is Errc::unsupported. Thread: the one that runs the server's io_context. Must not destroy
  // the server.
  virtual Result<nlohmann::json> handle(std::string_view verb, const nlohmann::json& args,
                                        const Credentials& credentials) = 0;

  // What lists the answer to this verb piece by piece. Null: handle() has the answer, or says why
  // there is none.
  virtual RowSource rows(std::string_view /*verb*/, const Credentials& /*credentials*/) {
    return nullptr;
  }

  // What the server is at from now on, a literal: every handler of it begins so, and belongs to a
  // turn of the thread.
  virtual void at(const char* /*step*/) {}
};

}  // namespace tern::daemon
