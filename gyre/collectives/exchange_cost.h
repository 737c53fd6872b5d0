#pragma once

#include <cstdint>
#include <string_view>

namespace gyre::collectives {

/// How the gradients of workers on several hosts become their average.
enum class Architecture : std::uint8_t {
  kAllreduce,         ///< The workers among themselves, by the schedule that choose_link_schedule() takes.
  kDedicatedServers,  ///< Through parameter servers, each on a host of its own.
  kColocatedServers,  ///< Through parameter servers on the first of the workers' hosts, one on each.
};

std::string_view architecture_name(Architecture architecture);

/// Hosts joined by equal links to a switch that never limits them, with one worker on each host that has one.
struct ExchangeSetting {
  int workers = 1;
  std::uint64_t bytes = 0;      ///< Of one worker's gradients.
  double bytes_per_second = 0;  ///< Of each host's link, in each direction, both at the same time.
  double latency_seconds = 0;   ///< From one host to another.
  /// With servers: the size of the blocks in which gradients travel, at most. A server answers a block as soon as it
  /// has arrived from all workers, while the next is still on its way. 0: server_block_bytes().
  std::uint64_t block_bytes = 0;
};

/// The limit for blocks that suits this number of servers: each gets the same number of them, up to 16, so that answers
/// overlap with gradients, but none smaller than 64 KB for that; more than 16 where blocks would be larger than 4 MB;
/// and none smaller than 4 KB. A multiple of 64 bytes. Pure; for a positive number of servers.
std::uint64_t server_block_bytes(std::uint64_t bytes, int servers);

/// What one step costs. A host receives as many bytes as it sends.
struct ExchangeCost {
  double seconds = 0;
  double worker_host_bytes = 0;  ///< Sent by a host with a worker and no server; by each worker's host in an allreduce.
  double server_host_bytes = 0;  ///< Sent by a host with a server; 0 where there is none.
};

/// The time that the network takes, for n workers, k servers, M bytes, a rate of B and a latency of α:
///
///   allreduce              as link_cost.h says; a ring: 2 (n-1)/n M/B + 2 (n-1) α
///   k dedicated servers    max(1, n/k) (1 + 1/b) M/B + 2 α, with b blocks on each server
///   k = n at the workers   2 (n-1)/n M/B + 2 α
///
/// In general, with servers: the busiest direction of a link is busy all the time, and the last block's answers follow
/// when its gradients have arrived. The server with most blocks counts. Processors, memory and headers do not.
///
/// Pure. Error(kInvalidArgument) unless there is a worker, bytes and rate are positive, the latency is not negative,
/// and with servers: there is at least one, and at the workers at most one for each. `servers` does not matter to
/// kAllreduce.
ExchangeCost exchange_cost(Architecture architecture, int servers, const ExchangeSetting& setting);

struct ArchitectureChoice {
  Architecture architecture = Architecture::kAllreduce;
  int servers = 0;  ///< 0 for kAllreduce.
  ExchangeCost cost;
};

/// The quickest architecture where `spare_hosts` hosts without a worker may become dedicated servers. Of those within
/// 2 % of the quickest it is the first of: allreduce, a server at each worker, the smallest number of dedicated
/// servers. Pure; errors as above, and for a negative number of spare hosts.
ArchitectureChoice choose_architecture(const ExchangeSetting& setting, int spare_hosts);

}  // namespace gyre::collectives
