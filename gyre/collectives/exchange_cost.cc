#include "gyre/collectives/exchange_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/collectives/link_cost.h"

namespace gyre::collectives {
namespace {

/// So much slower than the quickest counts as equal: the model is no more exact than that.
constexpr double kEqual = 1.02;

void check(const ExchangeSetting& setting) {
  if (setting.workers >= 1 && setting.bytes > 0 && setting.bytes_per_second > 0 && setting.latency_seconds >= 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("an exchange of {} workers, {} bytes, {} bytes per second and {} s of latency: all must be "
                          "positive, the latency may be 0",
                          setting.workers, setting.bytes, setting.bytes_per_second, setting.latency_seconds));
}

ExchangeCost allreduce_cost(const ExchangeSetting& setting) {
  const int n = setting.workers;
  const double bytes = static_cast<double>(setting.bytes);
  // Chosen as programs choose, by the usual links; its cost at this setting's.
  const LinkSchedule schedule = choose_link_schedule(n, setting.bytes);
  const LinkCost cost = link_cost(schedule, n, bytes);
  const LinkRates rates{.latency_seconds = setting.latency_seconds, .bytes_per_second = setting.bytes_per_second};
  return {cost.seconds(rates), cost.bytes_sent, 0};
}

/// What one host's link carries while gradients go to the servers. While the answers come back it carries as much the
/// other way.
struct Load {
  double sent = 0;
  double received = 0;

  double busiest() const { return std::max(sent, received); }
  double both() const { return sent + received; }
};

/// What the server with most blocks has.
struct Share {
  double blocks = 1;
  double of_bytes = 1;
};

Share largest_share(int servers, const ExchangeSetting& setting) {
  const std::uint64_t limit =
      setting.block_bytes > 0 ? setting.block_bytes : server_block_bytes(setting.bytes, servers);
  const double blocks = std::ceil(static_cast<double>(setting.bytes) / static_cast<double>(limit));
  const double most = std::ceil(blocks / servers);
  return {.blocks = most, .of_bytes = most / blocks};
}

ExchangeCost server_cost(bool colocated, int servers, const ExchangeSetting& setting) {
  const double n = setting.workers;
  const Share share = largest_share(servers, setting);
  const double bytes = static_cast<double>(setting.bytes);
  const Load worker{.sent = bytes};
  const Load server = colocated
                          ? Load{.sent = bytes * (1 - share.of_bytes), .received = (n - 1) * bytes * share.of_bytes}
                          : Load{.received = n * bytes * share.of_bytes};
  const bool has_workers_alone = !colocated || servers < setting.workers;
  double one_way = server.busiest();
  double both_ways = server.both();
  if (has_workers_alone) {
    one_way = std::max(one_way, worker.busiest());
    both_ways = std::max(both_ways, worker.both());
  }
  const double busy = std::max(both_ways, one_way * (1 + 1 / share.blocks));
  return {busy / setting.bytes_per_second + (busy > 0 ? 2 * setting.latency_seconds : 0),
          has_workers_alone ? worker.both() : 0, server.both()};
}

constexpr std::uint64_t kBlocksPerServer = 16;
constexpr std::uint64_t kLeastBlockBytes = std::uint64_t{4} << 10;
constexpr std::uint64_t kGoodBlockBytes = std::uint64_t{64} << 10;  ///< Below that single messages take time.
constexpr std::uint64_t kMostBlockBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kBlockUnitBytes = 64;

std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) { return value / by + (value % by > 0 ? 1 : 0); }

}  // namespace

std::uint64_t server_block_bytes(std::uint64_t bytes, int servers) {
  const std::uint64_t share = divide_up(bytes, static_cast<std::uint64_t>(servers));
  const std::uint64_t blocks = std::max(std::clamp<std::uint64_t>(share / kGoodBlockBytes, 1, kBlocksPerServer),
                                        divide_up(share, kMostBlockBytes));
  return std::max(divide_up(share, blocks * kBlockUnitBytes) * kBlockUnitBytes, kLeastBlockBytes);
}

std::string_view architecture_name(Architecture architecture) {
  switch (architecture) {
    case Architecture::kAllreduce: return "allreduce";
    case Architecture::kDedicatedServers: return "dedicated";
    case Architecture::kColocatedServers: return "colocated";
  }
  return "unknown";
}

ExchangeCost exchange_cost(Architecture architecture, int servers, const ExchangeSetting& setting) {
  check(setting);
  if (architecture == Architecture::kAllreduce) return allreduce_cost(setting);
  const bool colocated = architecture == Architecture::kColocatedServers;
  if (servers < 1 || (colocated && servers > setting.workers)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} {} parameter servers for {} workers: at least one is needed, and at most one on each "
                            "worker's host",
                            servers, architecture_name(architecture), setting.workers));
  }
  return server_cost(colocated, servers, setting);
}

ArchitectureChoice choose_architecture(const ExchangeSetting& setting, int spare_hosts) {
  if (spare_hosts < 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} spare hosts cannot be", spare_hosts));
  }
  // In the order of preference.
  std::vector<ArchitectureChoice> choices;
  const auto add = [&](Architecture architecture, int servers) {
    choices.push_back({architecture, servers, exchange_cost(architecture, servers, setting)});
  };
  add(Architecture::kAllreduce, 0);
  add(Architecture::kColocatedServers, setting.workers);  // Fewer are slower.
  // More servers than workers bring nothing: the workers' own links limit them.
  for (int servers = 1; servers <= std::min(spare_hosts, setting.workers); ++servers) {
    add(Architecture::kDedicatedServers, servers);
  }
  const auto quickest = std::ranges::min_element(choices, {}, [](const ArchitectureChoice& choice) {
                          return choice.cost.seconds;
                        })->cost.seconds;
  return *std::ranges::find_if(
      choices, [&](const ArchitectureChoice& choice) { return choice.cost.seconds <= quickest * kEqual; });
}

}  // namespace gyre::collectives
