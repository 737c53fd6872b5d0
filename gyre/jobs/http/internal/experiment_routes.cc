#include "gyre/jobs/http/internal/requests.h"

namespace gyre::jobs::http::internal {

void add_experiment_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  const std::string experiments = "/workspaces/{workspace}/experiments";
  add_in_workspace(
      router, interface, Method::kGet, experiments,
      [service](Request& request, const resources::User&) {
        return page_answer(request, service->experiments(request.parameter("workspace"), page_in(request)));
      },
      [](Route& route) { route.query = kPageParameters; });
  add_in_workspace(router, interface, Method::kGet, experiments + "/{experiment}",
                   [service](Request& request, const resources::User&) {
                     return answer(200, to_json(service->experiment(experiment_in(request))));
                   });
  add_in_workspace(router, interface, Method::kPut, experiments + "/{experiment}",
                   [service](Request& request, const resources::User&) {
                     return created_answer(service->create_experiment(experiment_in(request)));
                   });
  add_in_workspace(router, interface, Method::kDelete, experiments + "/{experiment}",
                   [service](Request& request, const resources::User&) {
                     service->delete_experiment(experiment_in(request));
                     return Response{.status = 202};
                   });
}

}  // namespace gyre::jobs::http::internal
