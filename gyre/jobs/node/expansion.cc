#include "gyre/jobs/node/expansion.h"

#include <algorithm>

#include "gyre/jobs/spec/variable_references.h"

namespace gyre::jobs::node {

namespace {

void add_once(std::vector<std::string>& names, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
}

}  // namespace

Expanded expand(std::string_view text, const Variables& variables) {
  Expanded result;
  spec::walk_variable_references(
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
  spec::walk_variable_references(text, [](std::string_view) {}, [&](std::string_view name) { add_once(names, name); });
  return names;
}

}  // namespace gyre::jobs::node
