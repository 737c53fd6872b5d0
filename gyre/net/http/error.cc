#include "gyre/net/http/error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace gyre::net::http {
namespace {

using nlohmann::json;

constexpr std::size_t kMostQuotedBytes = 200;

ErrorCode code_of(int status) {
  switch (status) {
    case 401:
    case 403: return ErrorCode::kAuthentication;
    case 404: return ErrorCode::kNotFound;
    case 408:
    case 504: return ErrorCode::kTimeout;
    case 413:
    case 414:
    case 429:
    case 431:
    case 507: return ErrorCode::kResourceExhausted;
    case 501: return ErrorCode::kUnsupported;
    case 503: return ErrorCode::kShutDown;
    default: return status >= 500 ? ErrorCode::kInternal : ErrorCode::kInvalidArgument;
  }
}

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

HttpError foreign_error(int status, std::string_view body) {
  const std::string_view beginning = body.substr(0, kMostQuotedBytes);
  return {status, "UnexpectedResponse",
          beginning.empty() ? fmt::format("the server answered {} {}", status, status_phrase(status))
                            : fmt::format("the server answered {} {}: {}", status, status_phrase(status), beginning)};
}

}  // namespace

HttpError::HttpError(int status, std::string name, std::string message, std::string target, std::vector<Detail> details)
    : Error(code_of(status), std::move(message)),
      status_(status),
      name_(std::move(name)),
      target_(std::move(target)),
      details_(std::move(details)) {}

Response error_response(const HttpError& error) {
  json details = json::array();
  for (const auto& [code, message, target] : error.details()) {
    details.push_back({{"code", code}, {"message", message}, {"target", text_or_null(target)}});
  }
  const json body = {{"error",
                      {{"code", error.name()},
                       {"message", error.what()},
                       {"target", text_or_null(error.target())},
                       {"details", std::move(details)}}}};
  // A message may quote what a client or a file contained.
  Response response = json_response(error.status(), body.dump(-1, ' ', false, json::error_handler_t::replace));
  for (const auto& [name, value] : error.headers) response.headers.set(name, value);
  return response;
}

HttpError as_http_error(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const HttpError*>(&exception)) return *error;
  const Error error = as_error(exception);
  switch (error.code()) {
    case ErrorCode::kInvalidArgument: return {400, "InvalidArgument", error.what()};
    case ErrorCode::kNotFound: return {404, "NotFound", error.what()};
    case ErrorCode::kUnsupported: return {501, "NotSupported", error.what()};
    case ErrorCode::kTimeout: return {504, "Timeout", error.what()};
    case ErrorCode::kResourceExhausted: return {507, "ResourceExhausted", error.what()};
    case ErrorCode::kShutDown: return {503, "ShuttingDown", error.what()};
    default: return {500, "InternalError", "the server failed to handle this request; its log says why"};
  }
}

HttpError parse_error_body(int status, std::string_view body) {
  const json parsed = json::parse(body, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("error") || !parsed["error"].is_object()) {
    return foreign_error(status, body);
  }
  const json& error = parsed["error"];
  std::vector<HttpError::Detail> details;
  if (const auto found = error.find("details"); found != error.end() && found->is_array()) {
    for (const json& detail : *found) {
      if (!detail.is_object()) continue;
      details.push_back({text_at(detail, "code"), text_at(detail, "message"), text_at(detail, "target")});
    }
  }
  return {status, text_at(error, "code"), text_at(error, "message"), text_at(error, "target"), std::move(details)};
}

}  // namespace gyre::net::http
