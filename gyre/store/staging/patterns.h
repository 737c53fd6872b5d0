#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gyre/store/sources/source.h"

namespace gyre::store {

/// Selects objects by the last part of their names, as AzCopy's --include-pattern and --exclude-pattern do: '*' stands
/// for any characters, '?' for one; several patterns are divided by ';' or ','.
class NamePatterns {
 public:
  /// Empty texts select everything, and leave nothing out.
  NamePatterns(std::string_view include, std::string_view exclude);

  /// Error(kInvalidArgument) where nothing is left of some objects, or one pattern of `include` matches nothing: a
  /// pattern that nobody meant must not pass for an empty set.
  std::vector<Object> select(std::vector<Object> objects, const std::string& source) const;

 private:
  std::vector<std::string> include_;
  std::vector<std::string> exclude_;
};

/// Whether all of `name` matches.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace gyre::store
