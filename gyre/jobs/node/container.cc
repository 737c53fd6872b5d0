#include "gyre/jobs/node/container.h"

#include <fmt/format.h>

namespace gyre::jobs::node {

std::optional<std::string> why_no_container(const spec::JobSpec& job, const spec::ClusterSpec& cluster) {
  using spec::Containers;
  const Containers containers = cluster.gyre.containers;
  const bool can_start = containers == Containers::kContainer && cluster.gyre.driver == "local";
  if (!job.container_settings || containers == Containers::kHost || can_start) return std::nullopt;
  return fmt::format(
      "it has containerSettings (image {}), and {}; remove them, or use a cluster "
      "that runs such jobs on the host (--containers-on-host of `gyre cluster create`, or \"containers\": \"host\" in "
      "its gyreSettings)",
      job.container_settings->image,
      containers == Containers::kRefused
          ? std::string("the cluster refuses them (\"containers\": \"refused\" in its gyreSettings)")
          : fmt::format("driver '{}' cannot start containers", cluster.gyre.driver));
}

containers::ImageName image_of(const spec::ContainerSettings& settings) {
  containers::ImageName name{.image = settings.image,
                             .server = settings.server_url.value_or(""),
                             .user = {},
                             .password = {},
                             .digest = settings.digest};
  if (settings.credentials) {
    name.user = settings.credentials->username;
    name.password = settings.credentials->password.text.value_or("");
  }
  return name;
}

}  // namespace gyre::jobs::node
