#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/resources/resources.h"
#include "gyre/jobs/spec/parse.h"
#include "gyre/net/http/error.h"

namespace gyre::jobs::http::internal {

/// The answer to a job or cluster that is wrong: the first error as its message, all problems as its details, whose
/// targets are JSON pointers.
net::http::HttpError spec_error(std::string_view name, const std::vector<spec::Problem>& problems);

/// For files of requests: ?strict=true is passed on.
spec::ParseOptions parse_options(bool strict, spec::Format format = spec::Format::kDetected);

/// What a name or resource id says about a cluster: "c", "/workspaces/w/clusters/c" or any longer path that ends like
/// it; without a workspace it is one of `workspace`. HttpError(400) "InvalidClusterId".
resources::ClusterName parse_cluster_id(std::string_view id, const std::string& workspace);

}  // namespace gyre::jobs::http::internal
