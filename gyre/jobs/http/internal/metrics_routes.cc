#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "gyre/jobs/http/internal/requests.h"

namespace gyre::jobs::http::internal {
namespace {

using resources::ExecutionState;

constexpr std::array kStates = {ExecutionState::kQueued, ExecutionState::kRunning, ExecutionState::kTerminating};

/// All of a list, page by page. `ask`: of one page.
template <typename Ask>
auto all_of(const Ask& ask) {
  auto page = ask(resources::PageRequest{.limit = resources::kLongestPage});
  auto items = std::move(page.items);
  while (page.next) {
    page = ask(resources::PageRequest{.after = *page.next, .limit = resources::kLongestPage});
    for (auto& item : page.items) items.push_back(std::move(item));
  }
  return items;
}

std::string jobs_of(service::JobService& service, const std::string& workspace) {
  std::string lines;
  for (const ExecutionState state : kStates) {
    const auto jobs =
        all_of([&](const resources::PageRequest& page) { return service.jobs(workspace, {.state = state}, page); });
    lines += fmt::format("gyre_server_jobs{{workspace=\"{}\",state=\"{}\"}} {}\n", workspace, name(state), jobs.size());
  }
  return lines;
}

std::string nodes_of(service::JobService& service, const std::string& workspace) {
  std::string lines;
  for (const resources::Cluster& cluster :
       all_of([&](const resources::PageRequest& page) { return service.clusters(workspace, page); })) {
    const resources::NodeStateCounts& counts = cluster.node_state_counts;
    const std::array<std::pair<const char*, int>, 5> states = {{{"idle", counts.idle},
                                                                {"running", counts.running},
                                                                {"preparing", counts.preparing},
                                                                {"unusable", counts.unusable},
                                                                {"leaving", counts.leaving}}};
    for (const auto& [state, count] : states) {
      lines += fmt::format("gyre_server_nodes{{workspace=\"{}\",cluster=\"{}\",state=\"{}\"}} {}\n", workspace,
                           cluster.name.cluster, state, count);
    }
  }
  return lines;
}

}  // namespace

void add_metrics_routes(Router& router, const Interface& interface) {
  add(router, interface, Method::kGet, "/metrics",
      [service = interface.service](Request&, const resources::User& sender) {
        std::string jobs;
        std::string nodes;
        for (const resources::Workspace& workspace :
             all_of([&](const resources::PageRequest& page) { return service->workspaces(sender, page); })) {
          jobs += jobs_of(*service, workspace.name);
          nodes += nodes_of(*service, workspace.name);
        }
        Response response;
        response.headers.add("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
        if (!jobs.empty()) {
          response.body += "# HELP gyre_server_jobs Jobs that have not ended.\n# TYPE gyre_server_jobs gauge\n" + jobs;
        }
        if (!nodes.empty()) {
          response.body += "# HELP gyre_server_nodes Nodes of clusters.\n# TYPE gyre_server_nodes gauge\n" + nodes;
        }
        return response;
      });
}

}  // namespace gyre::jobs::http::internal
