#include "gyre/store/sources/index_page.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

std::string without_entities(std::string text) {
  static constexpr std::array<std::pair<std::string_view, char>, 6> kEntities = {
      {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}, {"&#x27;", '\''}, {"&amp;", '&'}}};
  for (const auto& [entity, letter] : kEntities) {
    for (std::size_t at = text.find(entity); at != std::string::npos; at = text.find(entity, at + 1)) {
      text.replace(at, entity.size(), 1, letter);
    }
  }
  return text;
}

bool starts_with_letters(std::string_view text, std::string_view letters) {
  return text.size() >= letters.size() &&
         std::ranges::equal(text.substr(0, letters.size()), letters,
                            [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
}

/// The value of the attribute href of each <a …>, in their order.
std::vector<std::string> references(std::string_view html) {
  std::vector<std::string> found;
  while (!html.empty()) {
    const std::size_t open = html.find('<');
    if (open == std::string_view::npos) break;
    html.remove_prefix(open + 1);
    const std::string_view tag = html.substr(0, html.find('>'));
    if (!starts_with_letters(tag, "a ") && !starts_with_letters(tag, "a\n")) continue;
    for (std::size_t at = 1; at + 5 < tag.size(); ++at) {
      if (!starts_with_letters(tag.substr(at), "href=")) continue;
      std::string_view value = tag.substr(at + 5);
      const char quote = value.empty() ? ' ' : value.front();
      if (quote == '"' || quote == '\'') {
        value.remove_prefix(1);
        found.push_back(without_entities(std::string(value.substr(0, value.find(quote)))));
      } else {
        found.push_back(without_entities(std::string(value.substr(0, value.find(' ')))));
      }
      break;
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> links_of_index_page(std::string_view html) {
  std::set<std::string> names;
  for (std::string link : references(html)) {
    if (link.starts_with("./")) link.erase(0, 2);
    // A scheme stands before the first '/': "mailto:", "http:".
    const std::size_t colon = link.find(':');
    if (link.empty() || link.front() == '/' || link.front() == '?' || link.front() == '#' || colon < link.find('/'))
      continue;
    link.erase(std::min(link.find('#'), link.size()));
    link.erase(std::min(link.find('?'), link.size()));
    std::string name = decode(link);
    const std::string_view part = std::string_view(name).substr(0, name.size() - (name.ends_with('/') ? 1 : 0));
    if (part.empty() || part == "." || part == ".." || part.find('/') != std::string_view::npos) continue;
    names.insert(std::move(name));
  }
  return {names.begin(), names.end()};
}

}  // namespace gyre::store
