#include "gyre/jobs/http/interface.h"

#include <fmt/format.h>

#include <utility>

#include "gyre/base/account.h"
#include "gyre/jobs/http/internal/requests.h"

namespace gyre::jobs::http {
namespace {

using namespace internal;

void add_root_routes(Router& router, const Interface& interface) {
  add(router, interface, Method::kGet, "/", [](Request&, const resources::User& sender) {
    return answer(
        200, {{"name", "gyre"}, {"version", GYRE_VERSION}, {"apiVersion", "2018-05-01"}, {"sender", to_json(sender)}});
  });
  router.add({.method = Method::kGet,
              .pattern = "/health",
              .handler = [](Request&) { return answer(200, {{"status", "ok"}}); },
              .open = true});
}

/// By the account's name: the service knows no numbers.
std::optional<resources::User> user_with_account(service::JobService& service, uid_t number) {
  const std::string account = name_of_account(number);
  if (auto user = service.user_with_account(account)) return user;
  throw HttpError(401, "Unauthorized",
                  fmt::format("account '{}' is not that of a user of this server; an administrator of the server makes "
                              "one with `gyre user create {}`",
                              account, account),
                  account);
}

}  // namespace

net::http::Router make_router(std::shared_ptr<service::JobService> service, const InterfaceLimits& limits) {
  const Interface interface{std::move(service), limits};
  Router router;
  add_root_routes(router, interface);
  add_user_routes(router, interface);
  add_workspace_routes(router, interface);
  add_cluster_routes(router, interface);
  add_experiment_routes(router, interface);
  add_job_routes(router, interface);
  add_event_routes(router, interface);
  add_file_routes(router, interface);
  add_code_routes(router, interface);
  add_run_routes(router, interface);
  add_stream_routes(router, interface);
  add_metrics_routes(router, interface);
  return router;
}

net::http::Authenticator make_authenticator(std::shared_ptr<service::JobService> service) {
  return [service = std::move(service)](const net::http::Credentials& sender) -> std::optional<net::http::Identity> {
    try {
      const auto user = sender.token.empty() ? user_with_account(*service, sender.account.value())
                                             : service->authenticate(sender.token);
      if (!user) return std::nullopt;
      return net::http::Identity{user->name, user->is_administrator};
    } catch (const resources::ServiceError& error) {
      throw as_answer(error);
    }
  };
}

}  // namespace gyre::jobs::http
