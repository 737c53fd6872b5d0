#include "gyre/jobs/http/internal/spec_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/parse.h"
#include "gyre/jobs/http/internal/requests.h"

namespace gyre::jobs::http::internal {

HttpError spec_error(std::string_view name, const std::vector<spec::Problem>& problems) {
  std::string message = "it cannot be read";
  std::string target;
  std::vector<HttpError::Detail> details;
  bool has_error = false;
  for (const spec::Problem& problem : problems) {
    const bool is_error = problem.severity == spec::Severity::kError;
    if (is_error && !std::exchange(has_error, true)) {
      message = spec::describe(problem);
      target = problem.pointer;
    }
    details.push_back({is_error ? "Error" : "Warning", spec::describe(problem), problem.pointer});
  }
  return {400, std::string(name), std::move(message), std::move(target), std::move(details)};
}

spec::ParseOptions parse_options(bool strict, spec::Format format) {
  spec::ParseOptions options;
  options.strict = strict;
  options.format = format;
  return options;
}

resources::ClusterName parse_cluster_id(std::string_view id, const std::string& workspace) {
  const HttpError invalid(400, "InvalidClusterId",
                          fmt::format("'{}' names no cluster: its name is needed, or its id, "
                                      "/workspaces/WORKSPACE/clusters/CLUSTER",
                                      id),
                          "/properties/cluster/id");
  if (id.find('/') == std::string_view::npos) {
    if (!is_name(id)) throw HttpError(invalid);
    return {workspace, std::string(id)};
  }
  const std::vector<std::string> parts = split(id, '/');
  resources::ClusterName name{workspace, ""};
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (net::http::equal_without_case(parts[i], "workspaces")) name.workspace = parts[i + 1];
    if (net::http::equal_without_case(parts[i], "clusters") && i + 2 == parts.size()) name.cluster = parts[i + 1];
  }
  if (!is_name(name.workspace) || !is_name(name.cluster)) throw HttpError(invalid);
  return name;
}

}  // namespace gyre::jobs::http::internal
