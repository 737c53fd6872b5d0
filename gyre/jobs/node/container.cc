#include "gyre/jobs/node/container.h"

#include <fmt/format.h>

namespace gyre::jobs::node {

std::optional<std::string> why_no_container(const spec::JobSpec& job, const spec::ClusterSpec& cluster) {
  if (!job.container_settings || cluster.gyre.containers != spec::Containers::kRefused) return std::nullopt;
  return fmt::format(
      "it has containerSettings ({}), and the cluster refuses them (\"containers\": \"refused\" in its "
      "gyreSettings); remove them, or use a cluster that runs such jobs in their containers, or on the host "
      "(--containers-on-host of `gyre cluster create`, or \"containers\": \"host\" in its gyreSettings)",
      words_of_image(*job.container_settings));
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
