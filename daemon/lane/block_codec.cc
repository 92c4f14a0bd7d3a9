#include "daemon/lane/block_codec.h"

namespace tern::daemon {

BlockCompletion BlockCodec::perform(const BlockRequest& request) {
  switch (request.verb) {
    case BlockVerb::gather:
      return encoder_.gather(request);
    case BlockVerb::scan:
      return encoder_.scan(request);
    case BlockVerb::encode:
      return encoder_.encode(request);
    case BlockVerb::begin:
      return decoder_.begin(request);
    case BlockVerb::add:
    case BlockVerb::begin_add:
      return decoder_.add(request);
    case BlockVerb::finish:
      return encoder_.finish(request);
    case BlockVerb::finish_parked:
      return encoder_.finish_parked(request);
    case BlockVerb::publish:
      return encoder_.publish(request);
    case BlockVerb::deliver:
      return decoder_.deliver(request);
    case BlockVerb::reduce:
      return decoder_.reduce(request);
  }
  return {};
}

}  // namespace tern::daemon
