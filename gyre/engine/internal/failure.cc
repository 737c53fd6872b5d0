#include "gyre/engine/internal/failure.h"

#include <fmt/format.h>

namespace gyre::engine::internal {

std::string describe_operation(const Request& request, std::size_t others) {
  return fmt::format("{} '{}'{}", operation_name(request.signature.kind), request.name,
                     others == 0 ? "" : fmt::format(" (and {} more, fused with it)", others));
}

Error name_collective(const std::exception& cause, const std::string& what, group::Group& group) {
  Error named = as_error(cause);
  if (group.abort_signal().triggered()) return named;
  if (named.code() == ErrorCode::kPeerLeft) {
    named = Error(named.code(), fmt::format("{}. {}", named.what(), kLeftEarly));
  }
  return named.add_context(what);
}

}  // namespace gyre::engine::internal
