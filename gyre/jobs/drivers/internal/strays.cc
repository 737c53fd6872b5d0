#include "gyre/jobs/drivers/internal/strays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <optional>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/drivers/internal/service_place.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::drivers {

namespace {

constexpr std::chrono::seconds kLongestAnswer{3};

/// Whether a service listens there: it tells those with another key than its own that they have another one.
bool is_alive(const Service& service) {
  try {
    orders::connect_securely(service.place, net::make_random_key(), {.purpose = orders::Purpose::kService},
                             Deadline::after(kLongestAnswer));
    return true;
  } catch (const Error& error) {
    return error.code() == ErrorCode::kAuthentication;
  }
}

}  // namespace

std::string end_strays(NodeEngine& engine, const std::string& own, const std::set<std::string>& jobs,
                       const std::set<std::string>& in_hand) {
  std::vector<std::string> left;
  for (const Holding& holding : engine.list()) {
    const std::string prefix = request_name("");
    if (holding.is_over() || !holding.name.starts_with(prefix)) continue;
    const std::string attempt = holding.name.substr(prefix.size());
    if (!jobs.contains(orders::job_of(attempt)) || in_hand.contains(attempt)) continue;
    const auto& service = holding.service;
    if (service && service->name != own && is_alive(*service)) {
      left.push_back(
          fmt::format("{} ({}) is of the server that listens at {}; end that server and its jobs, or this server: both "
                      "have the same jobs",
                      holding.id, attempt, net::to_string(service->place)));
      continue;
    }
    engine.release(holding.id);
    left.push_back(fmt::format("{} ({}) is being ended", holding.id, attempt));
  }
  if (left.empty()) return "";
  return fmt::format("{} has jobs of attempts that this server does not have: {}", engine.title(),
                     fmt::join(left, ", "));
}

}  // namespace gyre::jobs::drivers
