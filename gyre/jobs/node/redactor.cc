#include "gyre/jobs/node/redactor.h"

#include <algorithm>
#include <utility>

namespace gyre::jobs::node {

namespace {

constexpr std::string_view kHidden = "***";

}  // namespace

Redactor::Redactor(std::vector<std::string> secrets) : secrets_(std::move(secrets)) {
  std::erase_if(secrets_, [](const std::string& secret) { return secret.empty(); });
  std::ranges::sort(secrets_, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
}

std::string Redactor::take(bool at_end) {
  std::string result;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const auto begins_with = [&](const std::string& secret) { return rest.starts_with(secret); };
    const auto may_begin = [&](const std::string& secret) {
      return secret.size() > rest.size() && std::string_view(secret).starts_with(rest);
    };
    if (!at_end && std::ranges::any_of(secrets_, may_begin)) break;
    const auto found = std::ranges::find_if(secrets_, begins_with);
    if (found != secrets_.end()) result += kHidden;
    if (found == secrets_.end()) result += rest.front();
    rest.remove_prefix(found == secrets_.end() ? 1 : found->size());
  }
  held_ = std::string(rest);
  return result;
}

std::string Redactor::pass(std::string_view bytes) {
  held_ += bytes;
  return secrets_.empty() ? std::exchange(held_, {}) : take(false);
}

std::string Redactor::finish() { return take(true); }

}  // namespace gyre::jobs::node
