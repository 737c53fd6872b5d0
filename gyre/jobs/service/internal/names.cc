#include "gyre/jobs/service/internal/names.h"

#include <fmt/format.h>

namespace gyre::jobs::service {

std::string path_segment(const ServiceOptions& options, const resources::JobName& name, const std::string& uuid) {
  return fmt::format("{}/{}/workspaces/{}/experiments/{}/jobs/{}/{}", options.subscription, options.resource_group,
                     name.workspace, name.experiment, name.job, uuid);
}

std::string path_suffix(const ServiceOptions& options, const resources::ClusterName& name, const std::string& uuid) {
  return fmt::format("{}/{}/workspaces/{}/clusters/{}/{}", options.subscription, options.resource_group, name.workspace,
                     name.cluster, uuid);
}

}  // namespace gyre::jobs::service
