#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::spec {

/// What stands for "$" wherever variables are replaced: "${$}NAME" becomes "$NAME".
inline constexpr std::string_view kEscapedDollar = "${$}";

/// $NAME or ${NAME} in a text of a job file, where NAME is letters, digits and underscores and does not begin with a
/// digit.
struct VariableReference {
  std::string_view name{};
  std::size_t length = 0;  ///< Of the whole reference, with "$" and braces.
};

/// The reference that begins at the "$" in front of `text`, if one does.
inline std::optional<VariableReference> variable_reference_at(std::string_view text) {
  const auto begins_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const bool braces = text.size() > 1 && text[1] == '{';
  const std::size_t first = braces ? 2 : 1;
  std::size_t end = first;
  if (end >= text.size() || !begins_name(text[end])) return std::nullopt;
  while (end < text.size() && (begins_name(text[end]) || (text[end] >= '0' && text[end] <= '9'))) ++end;
  if (braces && (end >= text.size() || text[end] != '}')) return std::nullopt;
  return VariableReference{text.substr(first, end - first), end + (braces ? 1 : 0)};
}

/// A text in which every "$" stays as it is.
inline std::string with_escaped_dollars(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '$' ? kEscapedDollar : std::string_view(&c, 1);
  return escaped;
}

/// Whether the words are a shell and a line for it, `bash -c LINE`, in which nothing is replaced.
inline bool are_shell_line(const std::vector<std::string>& words) {
  constexpr std::array kShells = {"bash", "sh", "dash", "zsh", "ksh"};
  if (words.size() < 3 || words[1] != "-c") return false;
  return std::ranges::find(kShells, words.front().substr(words.front().rfind('/') + 1)) != kShells.end();
}

/// Hands on the names that are referred to, and all that stands between them, in order.
template <typename OnText, typename OnName>
void walk_variable_references(std::string_view text, const OnText& on_text, const OnName& on_name) {
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    on_text(text.substr(0, dollar));
    text.remove_prefix(dollar);
    if (text.empty()) return;
    const auto reference = variable_reference_at(text);
    if (reference) {
      on_name(reference->name);
    } else {
      on_text(text.substr(0, 1));
    }
    text.remove_prefix(reference ? reference->length : text.starts_with(kEscapedDollar) ? kEscapedDollar.size() : 1);
  }
}

}  // namespace gyre::jobs::spec
