#include <fmt/format.h>

#include <chrono>

#include "gyre/jobs/http/internal/requests.h"
#include "gyre/jobs/http/internal/spec_errors.h"

namespace gyre::jobs::http::internal {
namespace {

constexpr std::uint64_t kMostPatchBytes = 65'536;
constexpr std::int64_t kMostHours = 7 * 24;

Response put_cluster(service::JobService& service, const Request& request) {
  const resources::ClusterName name = cluster_in(request);
  const auto parsed = spec::parse_cluster(request.body, parse_options(flag_in(request, "strict")));
  if (!parsed.spec) throw spec_error("InvalidCluster", parsed.problems);
  return created_answer(service.create_cluster(name, *parsed.spec));
}

/// A PATCH has scaleSettings and nothing else; they are read as those of a cluster file are.
resources::Scale scale_in(const Request& request) {
  const nlohmann::json body = object_in(request);
  const auto properties = body.find("properties");
  const bool fits = body.size() == 1 && properties != body.end() && properties->is_object() &&
                    properties->size() == 1 && properties->contains("scaleSettings");
  if (!fits) {
    throw HttpError(400, "InvalidBody",
                    "of a cluster only scaleSettings can change: {\"properties\": {\"scaleSettings\": {…}}}",
                    "/properties/scaleSettings");
  }
  const nlohmann::json file = {
      {"properties", {{"vmSize", "unchanged"}, {"scaleSettings", (*properties)["scaleSettings"]}}}};
  const auto parsed = spec::parse_cluster(file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                                          parse_options(false, spec::Format::kJson));
  if (!parsed.spec) throw spec_error("InvalidScaleSettings", parsed.problems);
  return parsed.spec->scale_settings;
}

nlohmann::json use_json(const resources::ClusterUse& use) {
  return {{"begin", resources::iso_8601_time(use.begin)},
          {"knownFrom", resources::iso_8601_time(use.known_from)},
          {"partSeconds", static_cast<double>(use.part_us) / 1e6},
          {"running", use.running},
          {"idle", use.idle},
          {"other", use.other},
          {"waiting", use.waiting}};
}

}  // namespace

void add_cluster_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  const std::string clusters = "/workspaces/{workspace}/clusters";
  const std::string cluster = clusters + "/{cluster}";
  add_in_workspace(
      router, interface, Method::kGet, clusters,
      [service](Request& request, const resources::User&) {
        return page_answer(request, service->clusters(request.parameter("workspace"), page_in(request)));
      },
      [](Route& route) { route.query = kPageParameters; });
  add_in_workspace(router, interface, Method::kGet, cluster, [service](Request& request, const resources::User&) {
    return answer(200, to_json(service->cluster(cluster_in(request))));
  });
  add_in_workspace_for_administrators(
      router, interface, Method::kPut, cluster,
      [service](Request& request, const resources::User&) { return put_cluster(*service, request); },
      [](Route& route) {
        route.body_bytes = spec::kMostFileBytes;
        route.query = {"strict"};
      });
  add_in_workspace_for_administrators(
      router, interface, Method::kPatch, cluster,
      [service](Request& request, const resources::User&) {
        const resources::ClusterName name = cluster_in(request);
        return answer(200, to_json(service->scale_cluster(name, scale_in(request))));
      },
      [](Route& route) { route.body_bytes = kMostPatchBytes; });
  add_in_workspace_for_administrators(router, interface, Method::kDelete, cluster,
                                      [service](Request& request, const resources::User&) {
                                        service->delete_cluster(cluster_in(request));
                                        return Response{.status = 202};
                                      });
  add_in_workspace(
      router, interface, Method::kGet, cluster + "/nodes", [service](Request& request, const resources::User&) {
        return page_answer(request, resources::Page<resources::Node>{service->nodes(cluster_in(request)), {}});
      });
  add_in_workspace(
      router, interface, Method::kGet, cluster + "/use",
      [service](Request& request, const resources::User&) {
        const std::chrono::hours time(number_in(request, "hours", 1, kMostHours, 6));
        return answer(200, use_json(service->use(cluster_in(request), time)));
      },
      [](Route& route) { route.query = {"hours"}; });
}

}  // namespace gyre::jobs::http::internal
