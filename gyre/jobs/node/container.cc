#include "gyre/jobs/node/container.h"

#include <fmt/format.h>

namespace gyre::jobs::node {

std::optional<std::string> why_no_container(const spec::JobSpec& job, const spec::ClusterSpec& cluster) {
  if (!job.container_settings || cluster.gyre.containers == spec::Containers::kHost) return std::nullopt;
  return fmt::format(
      "it has containerSettings (image {}), and the cluster cannot start containers; remove them, or use a cluster "
      "that runs such jobs on the host (--containers-on-host of `gyre cluster create`, or \"containers\": \"host\" in "
      "its gyreSettings)",
      job.container_settings->image);
}

}  // namespace gyre::jobs::node
