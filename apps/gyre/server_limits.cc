#include "apps/gyre/server_limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "apps/gyre/usage_error.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/cli/suggest.h"
#include "gyre/cli/table.h"

namespace gyre::app {

namespace {

using jobs::service::ServiceOptions;
using net::http::ServerLimits;

/// Every limit fits into the types of all of them, and a rate's double holds it exactly.
constexpr std::int64_t kHighest = 1'000'000'000;
/// Of those in bytes.
constexpr std::int64_t kHighestBytes = std::int64_t{1} << 50;

struct Limit {
  const char* name;
  const char* meaning;
  bool in_bytes;
  std::int64_t (*value)(const ServerLimits& server, const ServiceOptions& service);
  void (*set)(ServerLimits& server, ServiceOptions& service, std::int64_t value);
};

constexpr std::array kLimits = {
    Limit{"requests", "requests a second; twice as many at once", false,
          [](const ServerLimits& server, const ServiceOptions&) {
            return static_cast<std::int64_t>(server.requests.per_second);
          },
          [](ServerLimits& server, ServiceOptions&, std::int64_t value) {
            const auto rate = static_cast<double>(value);
            server.requests = {.per_second = rate, .burst = 2 * rate};
          }},
    Limit{"followers", "followed logs and lists of events at once", false,
          [](const ServerLimits& server, const ServiceOptions&) {
            return static_cast<std::int64_t>(server.streams_per_user);
          },
          [](ServerLimits& server, ServiceOptions&, std::int64_t value) {
            server.streams_per_user = static_cast<std::size_t>(value);
          }},
    Limit{"bodies", "requests at once that send a body, as submissions and uploads do", false,
          [](const ServerLimits& server, const ServiceOptions&) {
            return static_cast<std::int64_t>(server.bodies_per_user);
          },
          [](ServerLimits& server, ServiceOptions&, std::int64_t value) {
            server.bodies_per_user = static_cast<std::size_t>(value);
          }},
    Limit{"queued-jobs", "jobs in the queue, of a user who is not an administrator", false,
          [](const ServerLimits&, const ServiceOptions& service) { return service.queued_jobs_per_user; },
          [](ServerLimits&, ServiceOptions& service, std::int64_t value) { service.queued_jobs_per_user = value; }},
    Limit{"code", "bytes of uploaded code that are kept, as in 500MB", true,
          [](const ServerLimits&, const ServiceOptions& service) {
            return static_cast<std::int64_t>(service.code_bytes_per_user);
          },
          [](ServerLimits&, ServiceOptions& service, std::int64_t value) {
            service.code_bytes_per_user = static_cast<std::uint64_t>(value);
          }},
    Limit{"job-logs", "bytes of the logs of one job, on all its nodes together; what is written beyond is cut off",
          true,
          [](const ServerLimits&, const ServiceOptions& service) {
            return static_cast<std::int64_t>(service.log_bytes_per_job);
          },
          [](ServerLimits&, ServiceOptions& service, std::int64_t value) {
            service.log_bytes_per_job = static_cast<std::uint64_t>(value);
          }},
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

std::int64_t number_of(const Limit& limit, const std::string& digits) {
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, failure] = std::from_chars(digits.data(), end, value);
  if (failure == std::errc() && rest == end && value >= 1 && value <= kHighest) return value;
  throw UsageError(fmt::format("--limit {}: '{}' is not a whole number from 1 to {}", limit.name, digits, kHighest));
}

std::int64_t bytes_of(const Limit& limit, const std::string& text) {
  std::uint64_t value = 0;
  try {
    value = parse_bytes(text, limit.name);
  } catch (const Error&) {
    value = 0;  // Refused below, in the words of an option.
  }
  if (value >= 1 && value <= kHighestBytes) return static_cast<std::int64_t>(value);
  throw UsageError(
      fmt::format("--limit {}: '{}' is not a number of bytes from 1 to 1024TB, as in 500MB or 20GB", limit.name, text));
}

}  // namespace

std::string limits_explained() {
  const ServerLimits server;
  const ServiceOptions service;
  std::string text;
  for (const Limit& limit : kLimits) {
    const std::int64_t value = limit.value(server, service);
    const std::string shown =
        limit.in_bytes ? cli::shown_bytes(static_cast<std::uint64_t>(value)) : fmt::to_string(value);
    text += fmt::format("\n  {:<12} {} ({})", limit.name, limit.meaning, shown);
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
    const std::string value = text.substr(equals + 1);
    limit.set(server, service, limit.in_bytes ? bytes_of(limit, value) : number_of(limit, value));
  }
}

}  // namespace gyre::app
