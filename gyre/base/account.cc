#include "gyre/base/account.h"

#include <fmt/format.h>
#include <pwd.h>

#include <cerrno>
#include <functional>
#include <vector>

namespace gyre {

namespace {

constexpr std::size_t kFirstBytes = 16'384;
constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // Of one entry, which a directory service may have made long.

/// The entry that `look` finds with a buffer that is large enough.
std::optional<passwd> found_by(std::vector<char>& text, const std::function<int(passwd&, passwd*&)>& look) {
  for (text.resize(kFirstBytes); text.size() <= kMostBytes; text.resize(2 * text.size())) {
    passwd entry{};
    passwd* found = nullptr;
    const int failure = look(entry, found);
    if (failure == ERANGE) continue;
    return found != nullptr ? std::optional(entry) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uid_t> account_number(const std::string& name) {
  std::vector<char> text;
  const auto entry = found_by(text, [&](passwd& into, passwd*& found) {
    return ::getpwnam_r(name.c_str(), &into, text.data(), text.size(), &found);
  });
  return entry ? std::optional(entry->pw_uid) : std::nullopt;
}

std::optional<std::string> account_name(uid_t number) {
  std::vector<char> text;
  const auto entry = found_by(text, [&](passwd& into, passwd*& found) {
    return ::getpwuid_r(number, &into, text.data(), text.size(), &found);
  });
  return entry ? std::optional<std::string>(entry->pw_name) : std::nullopt;
}

std::string name_of_account(uid_t number) { return account_name(number).value_or(fmt::format("#{}", number)); }

}  // namespace gyre
