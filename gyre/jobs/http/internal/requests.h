#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/jobs/http/interface.h"
#include "gyre/jobs/resources/json.h"
#include "gyre/jobs/resources/service_error.h"
#include "gyre/net/http/error.h"
#include "gyre/net/http/router.h"

namespace gyre::jobs::http::internal {

// What the routes of all resources have in common.

using net::http::HttpError;
using net::http::Method;
using net::http::Request;
using net::http::Response;
using net::http::Route;
using net::http::Router;

struct Interface {
  std::shared_ptr<service::JobService> service;
  InterfaceLimits limits;
};

/// A handler that knows its sender.
using SenderHandler = std::function<Response(Request& request, const resources::User& sender)>;

/// Adds a route for everybody with a token. ServiceErrors become answers.
void add(Router& router, const Interface& interface, Method method, const std::string& pattern,
         const SenderHandler& handler, const std::function<void(Route&)>& options = {});
/// For administrators: others get 403.
void add_for_administrators(Router& router, const Interface& interface, Method method, const std::string& pattern,
                            const SenderHandler& handler, const std::function<void(Route&)>& options = {});
/// For those who may use the workspace that the pattern names as {workspace}: others get the 404 of one that does not
/// exist. Whatever is not a GET is for those who may change something.
void add_in_workspace(Router& router, const Interface& interface, Method method, const std::string& pattern,
                      const SenderHandler& handler, const std::function<void(Route&)>& options = {});

/// What add_in_workspace() checks before it calls the handler, for what has to be refused before a body comes.
/// HttpError.
void check_in_workspace(service::JobService& service, const Request& request, const resources::User& sender);
/// The sender of a request of a route with a token.
resources::User sender_of(const Request& request);

/// For administrators, in a workspace: its owners get 403, everybody else the 404 of one that does not exist.
void add_in_workspace_for_administrators(Router& router, const Interface& interface, Method method,
                                         const std::string& pattern, const SenderHandler& handler,
                                         const std::function<void(Route&)>& options = {});

/// A similar name is suggested, of a workspace that the sender may use.
HttpError workspace_not_found(service::JobService& service, const resources::User& sender,
                              const std::string& workspace);
/// The answer that a service's error is.
HttpError as_answer(const resources::ServiceError& error);

/// A named segment that must be a resource's name. HttpError(400) "InvalidName".
std::string name_in(const Request& request, std::string_view parameter);
resources::ClusterName cluster_in(const Request& request);
resources::ExperimentName experiment_in(const Request& request);
resources::JobName job_in(const Request& request);
/// Whether `text` is 1 to 64 letters, digits, '-' and '_'.
bool is_name(std::string_view text);

/// The object in a request's body; an empty body is an empty object. HttpError(400) "InvalidBody".
nlohmann::json object_in(const Request& request);
/// A whole number of the query within [low, high], or `otherwise`. HttpError(400) "InvalidParameter".
std::int64_t number_in(const Request& request, std::string_view parameter, std::int64_t low, std::int64_t high,
                       std::int64_t otherwise);
/// "true" or "false". HttpError(400) "InvalidParameter".
bool flag_in(const Request& request, std::string_view parameter);

/// ?after=, ?maxresults= and ?order=newest.
inline const std::vector<std::string> kPageParameters{"after", "maxresults", "order"};
resources::PageRequest page_in(const Request& request);

Response answer(int status, const nlohmann::json& body);

/// {"value": items, "nextLink": the request's target behind the last item, or null}, in addition to what is in `body`.
Response page_answer(const Request& request, nlohmann::json items, const std::optional<std::string>& next,
                     nlohmann::json body = nlohmann::json::object());

template <typename Item>
Response page_answer(const Request& request, const resources::Page<Item>& page) {
  nlohmann::json items = nlohmann::json::array();
  for (const Item& item : page.items) items.push_back(to_json(item));
  return page_answer(request, std::move(items), page.next);
}

template <typename Item>
Response created_answer(const resources::Created<Item>& created) {
  return answer(created.is_new ? 201 : 200, to_json(created.item));
}

// One function for the routes of each kind of resource, in a file of its own.
void add_user_routes(Router& router, const Interface& interface);
void add_workspace_routes(Router& router, const Interface& interface);
void add_cluster_routes(Router& router, const Interface& interface);
void add_experiment_routes(Router& router, const Interface& interface);
void add_job_routes(Router& router, const Interface& interface);
void add_event_routes(Router& router, const Interface& interface);
void add_file_routes(Router& router, const Interface& interface);
void add_code_routes(Router& router, const Interface& interface);
void add_run_routes(Router& router, const Interface& interface);
void add_stream_routes(Router& router, const Interface& interface);
void add_metrics_routes(Router& router, const Interface& interface);

}  // namespace gyre::jobs::http::internal
