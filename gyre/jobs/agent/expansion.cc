#include "gyre/jobs/agent/expansion.h"

#include <algorithm>
#include <optional>

namespace gyre::jobs::agent {

namespace {

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

struct Reference {
  std::string_view name;
  std::size_t length = 0;  ///< Of the whole reference, with "$" and braces.
};

/// The reference that begins at the "$" in front of `text`.
std::optional<Reference> reference_at(std::string_view text) {
  const bool braces = text.size() > 1 && text[1] == '{';
  const std::size_t first = braces ? 2 : 1;
  std::size_t end = first;
  if (end >= text.size() || !begins_name(text[end])) return std::nullopt;
  while (end < text.size() && continues_name(text[end])) ++end;
  if (braces && (end >= text.size() || text[end] != '}')) return std::nullopt;
  return Reference{text.substr(first, end - first), end + (braces ? 1 : 0)};
}

void add_once(std::vector<std::string>& names, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
}

template <typename OnText, typename OnReference>
void walk(std::string_view text, const OnText& on_text, const OnReference& on_reference) {
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    on_text(text.substr(0, dollar));
    text.remove_prefix(dollar);
    if (text.empty()) return;
    const auto reference = reference_at(text);
    if (reference) {
      on_reference(reference->name);
    } else {
      on_text(text.substr(0, 1));
    }
    text.remove_prefix(reference ? reference->length : 1);
  }
}

}  // namespace

Expanded expand(std::string_view text, const Variables& variables) {
  Expanded result;
  walk(
      text, [&](std::string_view plain) { result.text += plain; },
      [&](std::string_view name) {
        const auto found = variables.find(std::string(name));
        if (found == variables.end()) return add_once(result.unset, name);
        result.text += found->second;
      });
  return result;
}

std::vector<std::string> referenced_names(std::string_view text) {
  std::vector<std::string> names;
  walk(text, [](std::string_view) {}, [&](std::string_view name) { add_once(names, name); });
  return names;
}

}  // namespace gyre::jobs::agent
