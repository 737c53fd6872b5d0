#include "gyre/jobs/drivers/slurm/internal/strays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/jobs/drivers/internal/orders.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/endpoint.h"

namespace gyre::jobs::drivers::slurm {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestAnswer{3};

/// Where its service listens, if one does that has its key. Only this account's folders are looked into.
std::optional<std::string> answering_service(const Home& home) {
  struct stat status{};
  if (::lstat(home.folder().c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    return std::nullopt;
  }
  std::string service;
  std::getline(std::ifstream(home.service()), service);
  std::error_code ignored;
  if (service.empty() || !fs::exists(home.key(), ignored)) return std::nullopt;
  try {
    orders::connect_securely(net::parse_endpoint(service), key_in(home.key()), {orders::Purpose::kService},
                             Deadline::after(kLongestAnswer));
    return service;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Where a service listens that has the attempt and is not the one of `own`, if it answers.
std::optional<std::string> living_service_of(const std::string& attempt, const fs::path& shared_folder,
                                             const Home& own) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(shared_folder, ignored)) {
    const Home other(entry.path());
    if (other.folder() == own.folder() || !fs::exists(other.attempt(attempt), ignored)) continue;
    if (auto service = answering_service(other)) return service;
  }
  return std::nullopt;
}

}  // namespace

std::string end_strays(const Commands& commands, const fs::path& shared_folder, const Home& own,
                       const std::set<std::string>& jobs, const std::set<std::string>& in_hand) {
  std::vector<std::string> left;
  for (const ListedJob& job : commands.list()) {
    const std::string prefix = job_name("");
    if (is_over(job.state) || !job.name.starts_with(prefix)) continue;
    const std::string attempt = job.name.substr(prefix.size());
    if (!jobs.contains(orders::job_of(attempt)) || in_hand.contains(attempt)) continue;
    if (const auto service = living_service_of(attempt, shared_folder, own)) {
      left.push_back(
          fmt::format("{} ({}) is of the server that listens at {}; end that server and its jobs, or this server: both "
                      "have the same jobs",
                      job.id, attempt, *service));
      continue;
    }
    commands.cancel(job.id);
    left.push_back(fmt::format("{} ({}) is being ended", job.id, attempt));
  }
  if (left.empty()) return "";
  return fmt::format("Slurm has jobs of attempts that this server does not have: {}", fmt::join(left, ", "));
}

}  // namespace gyre::jobs::drivers::slurm
