#include "gyre/store/staging/patterns.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"

namespace gyre::store {

namespace {

std::vector<std::string> divide(std::string_view text) {
  std::vector<std::string> patterns;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find_first_of(";,"));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    if (!one.empty()) patterns.emplace_back(one);
  }
  return patterns;
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('/') + 1); }

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;  // The last '*', and where what it stands for ends.
  std::size_t after = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == name[n] || pattern[p] == '?')) {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

NamePatterns::NamePatterns(std::string_view include, std::string_view exclude)
    : include_(divide(include)), exclude_(divide(exclude)) {}

std::vector<Object> NamePatterns::select(std::vector<Object> objects, const std::string& source) const {
  std::vector<bool> used(include_.size());
  std::erase_if(objects, [&](const Object& object) {
    const std::string_view name = last_part(object.name);
    bool wanted = include_.empty();
    for (std::size_t i = 0; i < include_.size(); ++i) {
      if (!matches(include_[i], name)) continue;
      wanted = true;
      used[i] = true;
    }
    return !wanted || std::ranges::any_of(exclude_, [&](const std::string& pattern) { return matches(pattern, name); });
  });
  const auto unused = std::ranges::find(used, false);
  if (unused != used.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the pattern '{}' matches no file of {}",
                            include_[static_cast<std::size_t>(unused - used.begin())], source));
  }
  if (objects.empty())
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the patterns leave no file of {}", source));
  return objects;
}

}  // namespace gyre::store
