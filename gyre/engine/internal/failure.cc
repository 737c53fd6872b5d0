#include "gyre/engine/internal/failure.h"

#include <fmt/format.h>

#include <array>

#include "gyre/engine/internal/open/order.h"

namespace gyre::engine::internal {

namespace {

/// What the engine's own operations about plans are called, before the plan's name.
constexpr std::array<std::string_view, 2> kAboutPlans = {kPlanDescriptionName, kPlanProposalName};

/// Empty for the program's own.
std::string plain_words(std::string_view name) {
  constexpr std::string_view kOfTorch = "collective ";
  if (name == kJoinName) return "join()";
  for (const std::string_view prefix : kAboutPlans) {
    if (!name.starts_with(prefix)) continue;
    return fmt::format("the agreement about gradient exchange '{}'", name.substr(prefix.size()));
  }
  const bool numbered = name.starts_with(kOfTorch) && name.size() > kOfTorch.size() && name[kOfTorch.size()] >= '0' &&
                        name[kOfTorch.size()] <= '9';
  return numbered ? std::string(name) : std::string();
}

}  // namespace

std::string shown_name(const std::string& name) {
  std::string words = plain_words(name);
  return words.empty() ? fmt::format("'{}'", name) : words;
}

std::string describe_operation(OperationKind kind, const std::string& name) {
  if (name == kJoinName) return "join()";
  const std::string words = plain_words(name);
  return words.empty() ? fmt::format("{} '{}'", operation_name(kind), name)
                       : fmt::format("{} ({})", words, operation_name(kind));
}

std::string describe_operation(const Request& request, std::size_t others) {
  return describe_operation(request.signature.kind, request.name) +
         (others == 0 ? "" : fmt::format(" (and {} more, fused with it)", others));
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
