#include "apps/gyre/server_limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "apps/gyre/usage_error.h"
#include "gyre/cli/suggest.h"

namespace gyre::app {

namespace {

using jobs::service::ServiceOptions;
using net::http::ServerLimits;

/// Every limit fits into the types of all of them, and a rate's double holds it exactly.
constexpr std::int64_t kHighest = 1'000'000'000;

struct Limit {
  const char* name;
  const char* meaning;
  std::int64_t (*value)(const ServerLimits& server, const ServiceOptions& service);
  void (*set)(ServerLimits& server, ServiceOptions& service, std::int64_t value);
};

constexpr std::array kLimits = {
    Limit{"requests", "requests a second; twice as many at once",
          [](const ServerLimits& server, const ServiceOptions&) {
            return static_cast<std::int64_t>(server.requests.per_second);
          },
          [](ServerLimits& server, ServiceOptions&, std::int64_t value) {
            const auto rate = static_cast<double>(value);
            server.requests = {.per_second = rate, .burst = 2 * rate};
          }},
    Limit{"followers", "followed logs and lists of events at once",
          [](const ServerLimits& server, const ServiceOptions&) {
            return static_cast<std::int64_t>(server.streams_per_user);
          },
          [](ServerLimits& server, ServiceOptions&, std::int64_t value) {
            server.streams_per_user = static_cast<std::size_t>(value);
          }},
    Limit{"bodies", "requests at once that send a body, as submissions and uploads do",
          [](const ServerLimits& server, const ServiceOptions&) {
            return static_cast<std::int64_t>(server.bodies_per_user);
          },
          [](ServerLimits& server, ServiceOptions&, std::int64_t value) {
            server.bodies_per_user = static_cast<std::size_t>(value);
          }},
    Limit{"queued-jobs", "jobs in the queue, of a user who is not an administrator",
          [](const ServerLimits&, const ServiceOptions& service) { return service.queued_jobs_per_user; },
          [](ServerLimits&, ServiceOptions& service, std::int64_t value) { service.queued_jobs_per_user = value; }},
};

const Limit& limit_named(std::string_view name) {
  const auto* found = std::ranges::find(kLimits, name, &Limit::name);
  if (found != kLimits.end()) return *found;
  std::vector<std::string> known;
  for (const Limit& limit : kLimits) known.emplace_back(limit.name);
  const auto meant = cli::nearest(name, known);
  throw UsageError(
      meant ? fmt::format("--limit: there is no limit '{}'; did you mean '{}'?", name, *meant)
            : fmt::format("--limit: there is no limit '{}'; the limits are {}", name, fmt::join(known, ", ")));
}

}  // namespace

std::string limits_explained() {
  const ServerLimits server;
  const ServiceOptions service;
  std::string text;
  for (const Limit& limit : kLimits) {
    text += fmt::format("\n  {:<12} {} ({})", limit.name, limit.meaning, limit.value(server, service));
  }
  return text;
}

void set_limits(const std::vector<std::string>& texts, ServerLimits& server, ServiceOptions& service) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      throw UsageError(fmt::format("--limit: '{}' must be NAME=N, as in followers=100", text));
    }
    const Limit& limit = limit_named(std::string_view(text).substr(0, equals));
    const std::string digits = text.substr(equals + 1);
    std::int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [rest, failure] = std::from_chars(digits.data(), end, value);
    if (failure != std::errc() || rest != end || value < 1 || value > kHighest) {
      throw UsageError(
          fmt::format("--limit {}: '{}' is not a whole number from 1 to {}", limit.name, digits, kHighest));
    }
    limit.set(server, service, value);
  }
}

}  // namespace gyre::app
