#include "gyre/jobs/http/internal/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "gyre/cli/suggest.h"

namespace gyre::jobs::http::internal {
namespace {

constexpr std::size_t kMostNameBytes = 64;
/// Of a body: deeper ones are refused before anything walks them.
constexpr int kMostNesting = 32;

/// Says no before it gets deep; the parser below would go as deep as the body.
bool nests_too_deep(std::string_view text) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_text) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        in_text = false;
      continue;
    }
    if (text[i] == '"') in_text = true;
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (depth > kMostNesting) return true;
  }
  return false;
}

/// Lets administrators through.
SenderHandler for_administrators(const SenderHandler& handler, const std::string& refusal) {
  return [handler, refusal](Request& request, const resources::User& sender) {
    if (!sender.is_administrator) throw HttpError(403, "NotAdministrator", refusal);
    return handler(request, sender);
  };
}

Response with_answers_for_errors(const SenderHandler& handler, Request& request, const resources::User& sender) {
  try {
    return handler(request, sender);
  } catch (const resources::ServiceError& error) {
    throw as_answer(error);
  }
}

void add_route(Router& router, Method method, const std::string& pattern, net::http::Handler handler,
               const std::function<void(Route&)>& options) {
  Route route{.method = method, .pattern = pattern, .handler = std::move(handler)};
  if (options) options(route);
  router.add(std::move(route));
}

}  // namespace

void add(Router& router, const Interface&, Method method, const std::string& pattern, const SenderHandler& handler,
         const std::function<void(Route&)>& options) {
  add_route(
      router, method, pattern,
      [handler](Request& request) { return with_answers_for_errors(handler, request, sender_of(request)); }, options);
}

void add_for_administrators(Router& router, const Interface& interface, Method method, const std::string& pattern,
                            const SenderHandler& handler, const std::function<void(Route&)>& options) {
  add(router, interface, method, pattern, for_administrators(handler, "only administrators may do this"), options);
}

resources::User sender_of(const Request& request) { return {request.sender.user, request.sender.is_administrator}; }

void add_in_workspace(Router& router, const Interface& interface, Method method, const std::string& pattern,
                      const SenderHandler& handler, const std::function<void(Route&)>& options) {
  add(
      router, interface, method, pattern,
      [handler, service = interface.service](Request& request, const resources::User& sender) {
        check_in_workspace(*service, request, sender);
        return handler(request, sender);
      },
      options);
}

void check_in_workspace(service::JobService& service, const Request& request, const resources::User& sender) {
  const std::string& workspace = request.parameter("workspace");
  // A name that cannot be one is no different from one that nobody has.
  if (!is_name(workspace) || !service.may_use(sender, workspace)) {
    throw workspace_not_found(service, sender, workspace);
  }
  if (request.method != Method::kGet && request.method != Method::kHead) service.check_may_change(sender);
}

void add_in_workspace_for_administrators(Router& router, const Interface& interface, Method method,
                                         const std::string& pattern, const SenderHandler& handler,
                                         const std::function<void(Route&)>& options) {
  add_in_workspace(router, interface, method, pattern,
                   for_administrators(handler,
                                      "only administrators make, change and delete clusters, because a cluster names "
                                      "directories to mount, a setup task and options of its driver; owners of a "
                                      "workspace submit jobs to the clusters that it has"),
                   options);
}

HttpError workspace_not_found(service::JobService& service, const resources::User& sender,
                              const std::string& workspace) {
  std::vector<std::string> known;
  for (const resources::Workspace& each : service.workspaces(sender, {.limit = resources::kLongestPage}).items)
    known.push_back(each.name);
  const auto meant = cli::nearest(workspace, known);
  return {404, "WorkspaceNotFound",
          fmt::format("there is no workspace '{}' that you may use{}", workspace,
                      meant ? fmt::format("; did you mean '{}'?", *meant) : ""),
          workspace};
}

HttpError as_answer(const resources::ServiceError& error) {
  const auto make = [&](int status, const char* retry_after = nullptr) {
    HttpError answer(status, error.name(), error.what(), error.target());
    if (retry_after != nullptr) answer.headers.set("Retry-After", retry_after);
    return answer;
  };
  switch (error.kind()) {
    case resources::ServiceError::Kind::kInvalid: return make(400);
    case resources::ServiceError::Kind::kForbidden: return make(403);
    case resources::ServiceError::Kind::kNotFound: return make(404);
    case resources::ServiceError::Kind::kConflict: return make(409);
    case resources::ServiceError::Kind::kQuota: return make(429, "60");
    case resources::ServiceError::Kind::kUnavailable: return make(503, "1");
    case resources::ServiceError::Kind::kNoRoom: return make(507);
  }
  return make(500);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMostNameBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

std::string name_in(const Request& request, std::string_view parameter) {
  const std::string& name = request.parameter(parameter);
  if (is_name(name)) return name;
  throw HttpError(400, "InvalidName",
                  fmt::format("'{}' is not a valid {} name: it takes 1 to {} letters, digits, '-' and '_'", name,
                              parameter, kMostNameBytes),
                  std::string(parameter));
}

resources::ClusterName cluster_in(const Request& request) {
  return {request.parameter("workspace"), name_in(request, "cluster")};
}

resources::ExperimentName experiment_in(const Request& request) {
  return {request.parameter("workspace"), name_in(request, "experiment")};
}

resources::JobName job_in(const Request& request) {
  return {request.parameter("workspace"), name_in(request, "experiment"), name_in(request, "job")};
}

nlohmann::json object_in(const Request& request) {
  const auto invalid = [](std::string_view what) {
    return HttpError(400, "InvalidBody", fmt::format("the body is not valid: {}", what));
  };
  if (request.body.empty()) return nlohmann::json::object();
  if (nests_too_deep(request.body)) throw invalid(fmt::format("it nests deeper than {} levels", kMostNesting));
  try {
    nlohmann::json body = nlohmann::json::parse(request.body);
    if (!body.is_object()) throw invalid("it is not a JSON object");
    return body;
  } catch (const nlohmann::json::parse_error& error) {
    throw invalid(fmt::format("it is not valid JSON at byte {}", error.byte));
  } catch (const nlohmann::json::out_of_range&) {
    throw invalid("it has a number that is too large");
  }
}

std::int64_t number_in(const Request& request, std::string_view parameter, std::int64_t low, std::int64_t high,
                       std::int64_t otherwise) {
  const std::string* text = request.query(parameter);
  if (text == nullptr) return otherwise;
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (failure == std::errc() && end == text->data() + text->size() && number >= low && number <= high) return number;
  throw HttpError(400, "InvalidParameter",
                  fmt::format("'{}' is '{}'; a number from {} to {} is needed", parameter, *text, low, high),
                  std::string(parameter));
}

bool flag_in(const Request& request, std::string_view parameter) {
  const std::string* text = request.query(parameter);
  if (text == nullptr || *text == "false") return false;
  if (*text == "true") return true;
  throw HttpError(400, "InvalidParameter", fmt::format("'{}' is '{}'; true or false is needed", parameter, *text),
                  std::string(parameter));
}

resources::PageRequest page_in(const Request& request) {
  resources::PageRequest page;
  page.limit = static_cast<int>(number_in(request, "maxresults", 1, resources::kLongestPage, page.limit));
  if (const std::string* after = request.query("after")) {
    if (!is_name(*after)) {
      throw HttpError(400, "InvalidParameter", "'after' is taken from a nextLink; this one is not", "after");
    }
    page.after = *after;
  }
  if (const std::string* order = request.query("order")) {
    if (*order != "newest" && *order != "oldest") {
      throw HttpError(400, "InvalidParameter", fmt::format("'order' is '{}'; newest or oldest is needed", *order),
                      "order");
    }
    page.newest_first = *order == "newest";
  }
  return page;
}

Response answer(int status, const nlohmann::json& body) {
  // Names of files need not be UTF-8.
  return net::http::json_response(status, body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Response page_answer(const Request& request, nlohmann::json items, const std::optional<std::string>& next,
                     nlohmann::json body) {
  body["value"] = std::move(items);
  body["nextLink"] = nullptr;
  if (next) {
    net::http::Target target = request.target;
    std::erase_if(target.query, [](const auto& parameter) { return parameter.first == "after"; });
    target.query.emplace_back("after", *next);
    body["nextLink"] = to_string(target);
  }
  return answer(200, body);
}

}  // namespace gyre::jobs::http::internal
