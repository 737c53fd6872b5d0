#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::cli {

/// The entry of `known` that `word` was probably meant to be: the fewest inserted, missing, changed or swapped letters,
/// at most a third of the word's; else one that begins like it. Dashes in front do not count. Nothing when none is that
/// close.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

/// "unknown option --bach-size; did you mean --batch-size?"
std::string no_such_option(std::string_view option, const std::vector<std::string>& known);

}  // namespace gyre::cli
