#include "gyre/net/http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::net::http {
namespace {

constexpr std::array<std::pair<std::string_view, Method>, 7> kMethods{{{"GET", Method::kGet},
                                                                       {"HEAD", Method::kHead},
                                                                       {"PUT", Method::kPut},
                                                                       {"POST", Method::kPost},
                                                                       {"PATCH", Method::kPatch},
                                                                       {"DELETE", Method::kDelete},
                                                                       {"OPTIONS", Method::kOptions}}};

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') || kOthers.find(c) != std::string_view::npos;
  });
}

bool is_field_value(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
}

}  // namespace

std::string_view method_name(Method method) {
  for (const auto& [word, known] : kMethods) {
    if (known == method) return word;
  }
  return "OTHER";
}

Method parse_method(std::string_view word) {
  for (const auto& [known, method] : kMethods) {
    if (known == word) return method;
  }
  return Method::kOther;
}

std::string_view status_phrase(int status) {
  switch (status) {
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Unknown";
  }
}

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

Headers::Headers(std::initializer_list<Field> fields) {
  for (const auto& [name, value] : fields) add(name, value);
}

void Headers::add(std::string name, std::string value) {
  if (!is_token(name)) throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a header name", name));
  if (!is_field_value(value)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the value of header {} has control characters", name));
  }
  fields_.emplace_back(std::move(name), std::move(value));
}

void Headers::set(std::string name, std::string value) {
  std::erase_if(fields_, [&](const Field& field) { return equal_without_case(field.first, name); });
  add(std::move(name), std::move(value));
}

const std::string* Headers::find(std::string_view name) const {
  for (const auto& [known, value] : fields_) {
    if (equal_without_case(known, name)) return &value;
  }
  return nullptr;
}

std::size_t Headers::count(std::string_view name) const {
  return static_cast<std::size_t>(std::count_if(
      fields_.begin(), fields_.end(), [&](const Field& field) { return equal_without_case(field.first, name); }));
}

const std::string& Request::parameter(std::string_view name) const {
  const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return p.first == name; });
  const bool route_has_parameter = found != parameters.end();
  GYRE_CHECK(route_has_parameter);
  return found->second;
}

const std::string* Request::query(std::string_view name) const {
  for (const auto& [known, value] : target.query) {
    if (known == name) return &value;
  }
  return nullptr;
}

Response json_response(int status, std::string json) {
  return {.status = status, .headers = {{"Content-Type", "application/json"}}, .body = std::move(json)};
}

}  // namespace gyre::net::http
