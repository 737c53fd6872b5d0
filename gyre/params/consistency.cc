#include "gyre/params/consistency.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/parse.h"

namespace gyre::params {
namespace {

constexpr std::int64_t kMostWorkers = 1 << 16;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char character : text) {
    if (character == ':') {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  return parts;
}

}  // namespace

ConsistencyChoice parse_consistency(std::string_view text) {
  const std::vector<std::string> parts = split(text);
  const std::string& kind = parts[0];
  const auto number = [&](std::int64_t least, std::int64_t most) {
    return parse_integer(parts[1], fmt::format("the number of '{}'", text), least, most);
  };
  ConsistencyChoice choice;
  if (text == "sync") return choice;
  if (text == "sync:continue") {
    choice.servers.survives_losses = true;
    return choice;
  }
  if (text == "async") {
    choice.servers = {.kind = Consistency::kAsync, .survives_losses = true};
    return choice;
  }
  if (kind == "backup" && parts.size() == 2) {
    choice.servers = {.backup_workers = static_cast<int>(number(1, kMostWorkers)), .survives_losses = true};
    return choice;
  }
  if (kind == "bounded" && parts.size() == 2) {
    choice.servers = {.kind = Consistency::kBounded,
                      .staleness = static_cast<std::uint64_t>(number(0, kMostSteps)),
                      .survives_losses = true};
    return choice;
  }
  if (kind == "local" && (parts.size() == 2 || parts.size() == 3)) {
    choice.local_steps = static_cast<std::uint64_t>(number(1, kMostSteps));
    if (parts.size() == 2) return choice;
    choice.outer = parts[2] == "bmuf" ? OuterOptimizer::kBmuf : OuterOptimizer::kNesterov;
    if (parts[2] == "bmuf" || parts[2] == "nesterov") return choice;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is none of: {}", text, kConsistencyForms));
}

UpdateOptions outer_rule(OuterOptimizer outer, int workers) {
  constexpr double kNesterovMomentum = 0.9;
  constexpr double kNesterovRate = 0.7;
  switch (outer) {
    case OuterOptimizer::kAverage: return {};
    case OuterOptimizer::kBmuf: return {.momentum = 1.0 - 1.0 / workers};
    case OuterOptimizer::kNesterov: return {.rate = kNesterovRate, .momentum = kNesterovMomentum, .nesterov = true};
  }
  return {};
}

}  // namespace gyre::params
