#include "gyre/net/http/router.h"

#include <algorithm>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/parse.h"

namespace gyre::net::http {
namespace {

bool is_named(std::string_view part) { return part.starts_with('{') && part.ends_with('}'); }
bool takes_rest(std::string_view part) { return is_named(part) && part.ends_with("...}"); }

std::string name_of(std::string_view part) {
  const bool rest = takes_rest(part);
  part.remove_prefix(1);
  part.remove_suffix(rest ? 4 : 1);
  return std::string(part);
}

std::string join(const std::vector<std::string>& segments, std::size_t from) {
  std::string joined = segments[from];
  for (std::size_t i = from + 1; i < segments.size(); ++i) joined += "/" + segments[i];
  return joined;
}

bool matches(const std::vector<std::string>& pattern, const std::vector<std::string>& segments,
             std::vector<std::pair<std::string, std::string>>& parameters) {
  const bool open_end = !pattern.empty() && takes_rest(pattern.back());
  if (open_end ? segments.size() < pattern.size() : segments.size() != pattern.size()) return false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (takes_rest(pattern[i])) {
      parameters.emplace_back(name_of(pattern[i]), join(segments, i));
    } else if (is_named(pattern[i])) {
      parameters.emplace_back(name_of(pattern[i]), segments[i]);
    } else if (pattern[i] != segments[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

void Router::add(Route route) {
  GYRE_CHECK(route.pattern.starts_with('/'));
  GYRE_CHECK(static_cast<bool>(route.handler));
  std::vector<std::string> parts =
      route.pattern == "/" ? std::vector<std::string>() : split(route.pattern.substr(1), '/');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    GYRE_CHECK(!parts[i].empty());
    const bool only_the_last_takes_the_rest = !takes_rest(parts[i]) || i + 1 == parts.size();
    GYRE_CHECK(only_the_last_takes_the_rest);
  }
  patterns_.push_back(std::move(parts));
  routes_.push_back(std::move(route));
}

Router::Match Router::find(Method method, const Target& target) const {
  const Method wanted = method == Method::kHead ? Method::kGet : method;
  Match match;
  for (std::size_t i = 0; i < routes_.size(); ++i) {
    std::vector<std::pair<std::string, std::string>> parameters;
    if (!matches(patterns_[i], target.segments, parameters)) continue;
    if (routes_[i].method == wanted) return {&routes_[i], std::move(parameters), {}};
    const auto allow = [&](Method allowed) {
      if (std::find(match.allowed.begin(), match.allowed.end(), allowed) == match.allowed.end()) {
        match.allowed.push_back(allowed);
      }
    };
    allow(routes_[i].method);
    if (routes_[i].method == Method::kGet) allow(Method::kHead);
  }
  return match;
}

}  // namespace gyre::net::http
