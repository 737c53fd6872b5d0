#include "gyre/jobs/drivers/slurm/internal/strays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <optional>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/drivers/slurm/internal/script.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::drivers::slurm {

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

std::string end_strays(const Commands& commands, const std::string& own, const std::set<std::string>& jobs,
                       const std::set<std::string>& in_hand) {
  std::vector<std::string> left;
  for (const ListedJob& job : commands.list()) {
    const std::string prefix = job_name("");
    if (is_over(job.state) || !job.name.starts_with(prefix)) continue;
    const std::string attempt = job.name.substr(prefix.size());
    if (!jobs.contains(orders::job_of(attempt)) || in_hand.contains(attempt)) continue;
    const auto service = service_in(job.comment);
    if (service && service->name != own && is_alive(*service)) {
      left.push_back(
          fmt::format("{} ({}) is of the server that listens at {}; end that server and its jobs, or this server: both "
                      "have the same jobs",
                      job.id, attempt, net::to_string(service->place)));
      continue;
    }
    commands.cancel(job.id);
    left.push_back(fmt::format("{} ({}) is being ended", job.id, attempt));
  }
  if (left.empty()) return "";
  return fmt::format("Slurm has jobs of attempts that this server does not have: {}", fmt::join(left, ", "));
}

}  // namespace gyre::jobs::drivers::slurm
