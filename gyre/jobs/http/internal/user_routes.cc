#include <fmt/format.h>

#include "gyre/jobs/http/internal/requests.h"

namespace gyre::jobs::http::internal {
namespace {

constexpr std::uint64_t kMostBodyBytes = 65'536;

/// Tokens are answers that nothing may keep.
Response token_answer(int status, const std::string& user, const std::string& token) {
  Response response = answer(status, {{"name", user}, {"token", token}});
  response.headers.set("Cache-Control", "no-store");
  return response;
}

HttpError invalid_property(const std::string& key, const char* others) {
  return {400, "InvalidBody",
          fmt::format("a user has the properties {}account, a text, and isTrusted, true or false", others), key};
}

/// Takes the property where it is one of those that can change; false where it is not.
bool take_change(resources::UserChange& change, const std::string& key, const nlohmann::json& value) {
  if (key == "account" && value.is_string()) {
    change.account = value.get<std::string>();
  } else if (key == "isTrusted" && value.is_boolean()) {
    change.is_trusted = value.get<bool>();
  } else {
    return false;
  }
  return true;
}

Response put_user(service::JobService& service, const Request& request) {
  resources::User user{name_in(request, "user")};
  resources::UserChange change;
  const nlohmann::json body = object_in(request);
  for (const auto& [key, value] : body.items()) {
    if (key == "isAdministrator" && value.is_boolean()) {
      user.is_administrator = value.get<bool>();
    } else if (!take_change(change, key, value)) {
      throw invalid_property(key, "isAdministrator, true or false, ");
    }
  }
  user.account = change.account.value_or("");
  user.is_trusted = change.is_trusted.value_or(false);
  return token_answer(201, user.name, service.create_user(user));
}

Response patch_user(service::JobService& service, const Request& request) {
  resources::UserChange change;
  const nlohmann::json body = object_in(request);
  for (const auto& [key, value] : body.items()) {
    if (!take_change(change, key, value)) throw invalid_property(key, "that can change: ");
  }
  return answer(200, to_json(service.change_user(name_in(request, "user"), change)));
}

}  // namespace

void add_user_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  add_for_administrators(router, interface, Method::kGet, "/users",
                         [service](Request& request, const resources::User&) {
                           return page_answer(request, resources::Page<resources::User>{service->users(), {}});
                         });
  add_for_administrators(
      router, interface, Method::kPut, "/users/{user}",
      [service](Request& request, const resources::User&) { return put_user(*service, request); },
      [](Route& route) { route.body_bytes = kMostBodyBytes; });
  add_for_administrators(
      router, interface, Method::kPatch, "/users/{user}",
      [service](Request& request, const resources::User&) { return patch_user(*service, request); },
      [](Route& route) { route.body_bytes = kMostBodyBytes; });
  add_for_administrators(router, interface, Method::kDelete, "/users/{user}",
                         [service](Request& request, const resources::User& sender) {
                           const std::string user = name_in(request, "user");
                           // Else the last administrator could leave the service to nobody.
                           if (user == sender.name) {
                             throw HttpError(409, "OwnUser", "nobody can delete the user that they are", user);
                           }
                           service->delete_user(user);
                           return Response{.status = 204};
                         });
  add_for_administrators(router, interface, Method::kPost, "/users/{user}/renewToken",
                         [service](Request& request, const resources::User&) {
                           const std::string user = name_in(request, "user");
                           return token_answer(200, user, service->renew_token(user));
                         });
}

}  // namespace gyre::jobs::http::internal
