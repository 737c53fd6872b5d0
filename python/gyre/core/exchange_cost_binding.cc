#include "python/gyre/core/exchange_cost_binding.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "gyre/base/error.h"
#include "gyre/collectives/exchange_cost.h"
#include "gyre/collectives/link_cost.h"

namespace gyre::python {
namespace {

using collectives::Architecture;
using collectives::ExchangeCost;
using collectives::ExchangeSetting;
using Cost = std::tuple<double, double, double>;

Architecture architecture_of(const std::string& name) {
  for (const Architecture architecture :
       {Architecture::kAllreduce, Architecture::kDedicatedServers, Architecture::kColocatedServers}) {
    if (collectives::architecture_name(architecture) == name) return architecture;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no architecture '{}'", name));
}

Cost tuple_of(const ExchangeCost& cost) { return {cost.seconds, cost.worker_host_bytes, cost.server_host_bytes}; }

Cost cost_of(const std::string& architecture, int servers, int workers, std::uint64_t bytes, double bytes_per_second,
             double latency_seconds, std::uint64_t block_bytes) {
  const ExchangeSetting setting{workers, bytes, bytes_per_second, latency_seconds, block_bytes};
  return tuple_of(collectives::exchange_cost(architecture_of(architecture), servers, setting));
}

std::tuple<std::string, int, Cost> choose(int workers, std::uint64_t bytes, double bytes_per_second,
                                          double latency_seconds, std::uint64_t block_bytes, int spare_hosts) {
  const ExchangeSetting setting{workers, bytes, bytes_per_second, latency_seconds, block_bytes};
  const collectives::ArchitectureChoice choice = collectives::choose_architecture(setting, spare_hosts);
  return {std::string(collectives::architecture_name(choice.architecture)), choice.servers, tuple_of(choice.cost)};
}

std::tuple<std::uint64_t, std::uint64_t> link_thresholds(int hosts) {
  if (hosts < 1) throw Error(ErrorCode::kInvalidArgument, fmt::format("{} hosts", hosts));
  const collectives::LinkThresholds thresholds = collectives::link_thresholds(hosts);
  return {thresholds.doubling_bytes, thresholds.halving_bytes};
}

}  // namespace

void bind_exchange_costs(nanobind::module_& module) {
  using nanobind::arg;
  module.def("exchange_cost", &cost_of, arg("architecture"), arg("servers"), arg("workers"), arg("bytes"),
             arg("bytes_per_second"), arg("latency_seconds"), arg("block_bytes"),
             "Seconds of a step's exchange by the cost model, and the bytes that a worker's and a server's host send. "
             "`architecture`: allreduce, dedicated or colocated.");
  module.def("choose_architecture", &choose, arg("workers"), arg("bytes"), arg("bytes_per_second"),
             arg("latency_seconds"), arg("block_bytes"), arg("spare_hosts"),
             "The quickest architecture, its servers, and its cost as exchange_cost returns it.");
  module.def("link_thresholds", &link_thresholds, arg("hosts"),
             "Up to how many bytes an allreduce between hosts goes by doubling, and up to how many by halving and "
             "doubling; above both it goes by ring.");
}

}  // namespace gyre::python
