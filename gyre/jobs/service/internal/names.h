#pragma once

#include <string>

#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/resources/resources.h"
#include "gyre/jobs/service/service.h"

namespace gyre::jobs::service {

/// "SUBSCRIPTION/GROUP/workspaces/w/experiments/e/jobs/j/UUID": jobOutputDirectoryPathSegment.
std::string path_segment(const ServiceOptions& options, const resources::JobName& name, const std::string& uuid);
/// "SUBSCRIPTION/GROUP/workspaces/w/clusters/c/UUID": stdOutErrPathSuffix of the cluster's setup task.
std::string path_suffix(const ServiceOptions& options, const resources::ClusterName& name, const std::string& uuid);

}  // namespace gyre::jobs::service
