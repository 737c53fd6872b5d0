#include "gyre/jobs/catalog/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/error.h"

namespace gyre::jobs::catalog {
namespace {

constexpr std::size_t kLongestName = 64;
/// Of a name that is far too long, this much is shown.
constexpr std::size_t kShownBytes = 80;

bool allowed(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

}  // namespace

void check_name(std::string_view name, std::string_view what) {
  if (name.empty()) throw Error(ErrorCode::kInvalidArgument, fmt::format("the {} is empty", what));
  if (name.size() > kLongestName) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the {} '{}' has {} characters; at most {} are allowed", what,
                            std::string(name.substr(0, kShownBytes)), name.size(), kLongestName));
  }
  if (!std::ranges::all_of(name, allowed)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the {} '{}' may have only letters, digits, '-' and '_'", what, name));
  }
}

std::string deleted_name(std::string_view name, std::int64_t id) {
  return fmt::format("{}{}{}", name, kDeletedMark, id);
}

}  // namespace gyre::jobs::catalog
