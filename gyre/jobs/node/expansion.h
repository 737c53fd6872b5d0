#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::jobs::node {

/// Names and values; in the order of the names, so that equal environments print alike.
using Variables = std::map<std::string, std::string>;

struct Expanded {
  std::string text;
  std::vector<std::string> unset;  ///< Names that had no value and became empty; each once, in order.
};

/// Replaces $NAME and ${NAME}, where NAME is letters, digits and underscores and does not begin with a digit. A name
/// without a value becomes empty. Any other "$" stays as it is, and values are not expanded again. Pure.
Expanded expand(std::string_view text, const Variables& variables);

/// The names that `text` refers to, as expand() sees them; each once, in order. For shell lines, which a shell expands.
std::vector<std::string> referenced_names(std::string_view text);

}  // namespace gyre::jobs::node
