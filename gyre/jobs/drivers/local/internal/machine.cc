#include "gyre/jobs/drivers/local/internal/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/node/container.h"
#include "gyre/jobs/node/job_environment.h"

namespace gyre::jobs::drivers::local::internal {

namespace {

[[noreturn]] void refuse(const std::string& asked, const std::string& there) {
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("it asks for {}, and the server's machine, whose virtual nodes "
                          "the cluster has, has {}; ask for less",
                          asked, there));
}

}  // namespace

void check_machine(const spec::JobSpec& job) {
  const int cores = usable_cores();
  if (job.cpus_per_node && *job.cpus_per_node > cores) {
    refuse(fmt::format("{} cores on each node (cpusPerNode)", *job.cpus_per_node), std::to_string(cores));
  }
  const std::uint64_t memory = containers::memory_of_machine();
  if (job.memory_per_node && containers::bytes_of_size(*job.memory_per_node) > memory) {
    refuse(fmt::format("{} of memory on each node (memoryPerNode)", *job.memory_per_node),
           fmt::format("{} MB", memory >> 20));
  }
}

std::optional<std::string> image_digest(const spec::JobSpec& job, const spec::ClusterSpec& cluster,
                                        const node::Variables& environment) {
  const bool wanted = job.container_settings && cluster.gyre.containers == spec::Containers::kContainer;
  if (!wanted) return std::nullopt;
  if (::geteuid() != 0) {
    throw Error(ErrorCode::kUnsupported,
                "containers need a server that root runs; or run such jobs on the host (`gyre cluster create "
                "--containers-on-host`)");
  }
  const std::vector<std::string> entries = node::as_entries(environment);
  const auto runtime =
      containers::find_runtime(containers::storage_of(entries), containers::runtime_environment(entries));
  if (job.container_settings->image.empty()) return std::nullopt;  // A Dockerfile names others.
  return runtime->digest_of(node::image_of(*job.container_settings));
}

}  // namespace gyre::jobs::drivers::local::internal
