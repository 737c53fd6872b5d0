#include <fmt/format.h>

#include "gyre/jobs/api/internal/requests.h"

namespace gyre::jobs::api::internal {
namespace {

constexpr std::uint64_t kMostBodyBytes = 65'536;

/// Tokens are answers that nothing may keep.
Response token_answer(int status, const std::string& user, const std::string& token) {
  Response response = answer(status, {{"name", user}, {"token", token}});
  response.headers.set("Cache-Control", "no-store");
  return response;
}

}  // namespace

void add_user_routes(Router& router, const Interface& interface) {
  const auto service = interface.service;
  add_for_administrators(router, interface, Method::kGet, "/users", [service](Request& request, const User&) {
    return page_answer(request, Page<User>{service->users(), {}});
  });
  add_for_administrators(
      router, interface, Method::kPut, "/users/{user}",
      [service](Request& request, const User&) {
        User user{name_in(request, "user")};
        const nlohmann::json body = object_in(request);
        for (const auto& [key, value] : body.items()) {
          if (key != "isAdministrator" || !value.is_boolean()) {
            throw HttpError(400, "InvalidBody", "a user has one property: isAdministrator, true or false", key);
          }
          user.is_administrator = value.get<bool>();
        }
        return token_answer(201, user.name, service->create_user(user));
      },
      [](Route& route) { route.body_bytes = kMostBodyBytes; });
  add_for_administrators(router, interface, Method::kDelete, "/users/{user}",
                         [service](Request& request, const User& sender) {
                           const std::string user = name_in(request, "user");
                           // Else the last administrator could leave the service to nobody.
                           if (user == sender.name) {
                             throw HttpError(409, "OwnUser", "nobody can delete the user that they are", user);
                           }
                           service->delete_user(user);
                           return Response{.status = 204};
                         });
  add_for_administrators(router, interface, Method::kPost, "/users/{user}/renewToken",
                         [service](Request& request, const User&) {
                           const std::string user = name_in(request, "user");
                           return token_answer(200, user, service->renew_token(user));
                         });
}

}  // namespace gyre::jobs::api::internal
