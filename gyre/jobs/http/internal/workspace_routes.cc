#include <fmt/format.h>

#include "gyre/jobs/http/internal/requests.h"

namespace gyre::jobs::http::internal {
namespace {

constexpr std::uint64_t kMostBodyBytes = 65'536;
constexpr std::size_t kMostLocationBytes = 64;

Response put_workspace(service::JobService& service, Request& request, const resources::User& sender) {
  resources::NewWorkspace workspace{.name = name_in(request, "workspace")};
  const nlohmann::json body = object_in(request);
  if (const auto location = body.find("location"); location != body.end()) {
    if (!location->is_string() || location->get_ref<const std::string&>().size() > kMostLocationBytes) {
      throw HttpError(400, "InvalidBody", fmt::format("location is a text of at most {} bytes", kMostLocationBytes),
                      "location");
    }
    workspace.location = *location;
  }
  return created_answer(service.create_workspace(sender, workspace));
}

/// A quota that is left out, or null, is lifted.
resources::Quotas quotas_in(const Request& request) {
  constexpr std::uint64_t kMostCores = 1'000'000'000;
  resources::Quotas quotas;
  const nlohmann::json body = object_in(request);
  for (const auto& [key, value] : body.items()) {
    const bool known = key == "cores" || key == "lowPriorityCores";
    const bool fits = value.is_null() || (value.is_number_unsigned() && value.get<std::uint64_t>() <= kMostCores);
    if (!known || !fits) {
      throw HttpError(400, "InvalidBody",
                      fmt::format("quotas are cores and lowPriorityCores, each null or a number up to {}", kMostCores),
                      key);
    }
    if (!value.is_null()) (key == "cores" ? quotas.cores : quotas.low_priority_cores) = value.get<std::int64_t>();
  }
  return quotas;
}

}  // namespace

void add_workspace_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  add(
      router, interface, Method::kGet, "/workspaces",
      [service](Request& request, const resources::User& sender) {
        return page_answer(request, service->workspaces(sender, page_in(request)));
      },
      [](Route& route) { route.query = kPageParameters; });
  add_in_workspace(router, interface, Method::kGet, "/workspaces/{workspace}",
                   [service](Request& request, const resources::User&) {
                     return answer(200, to_json(service->workspace(request.parameter("workspace"))));
                   });
  add_for_administrators(
      router, interface, Method::kPut, "/workspaces/{workspace}",
      [service](Request& request, const resources::User& sender) { return put_workspace(*service, request, sender); },
      [](Route& route) { route.body_bytes = kMostBodyBytes; });
  add_in_workspace(router, interface, Method::kDelete, "/workspaces/{workspace}",
                   [service](Request& request, const resources::User&) {
                     service->delete_workspace(request.parameter("workspace"));
                     return Response{.status = 202};
                   });
  add_in_workspace(router, interface, Method::kGet, "/workspaces/{workspace}/usages",
                   [service](Request& request, const resources::User&) {
                     return page_answer(request, resources::Page<resources::Usage>{
                                                     service->usages(request.parameter("workspace")), {}});
                   });
  add_for_administrators(
      router, interface, Method::kPut, "/workspaces/{workspace}/quotas",
      [service](Request& request, const resources::User&) {
        const std::string workspace = name_in(request, "workspace");
        service->set_quotas(workspace, quotas_in(request));
        return answer(200, to_json(service->workspace(workspace)));
      },
      [](Route& route) { route.body_bytes = kMostBodyBytes; });
  add_in_workspace(router, interface, Method::kGet, "/workspaces/{workspace}/owners",
                   [service](Request& request, const resources::User&) {
                     nlohmann::json owners = nlohmann::json::array();
                     for (const std::string& name : service->owners(request.parameter("workspace"))) {
                       owners.push_back({{"name", name}});
                     }
                     return page_answer(request, std::move(owners), std::nullopt);
                   });
  add_in_workspace(router, interface, Method::kPut, "/workspaces/{workspace}/owners/{user}",
                   [service](Request& request, const resources::User&) {
                     service->add_owner(request.parameter("workspace"), name_in(request, "user"));
                     return Response{.status = 204};
                   });
  add_in_workspace(router, interface, Method::kDelete, "/workspaces/{workspace}/owners/{user}",
                   [service](Request& request, const resources::User&) {
                     service->remove_owner(request.parameter("workspace"), name_in(request, "user"));
                     return Response{.status = 204};
                   });
}

}  // namespace gyre::jobs::http::internal
