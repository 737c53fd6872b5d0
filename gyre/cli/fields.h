#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gyre::cli {

/// Names and their values in two columns; those without a value are left out. `columns`: of a terminal, on which long
/// values go on below themselves, between words; 0: none, and each line of a value is one line. Values are shown
/// printable(), but for their line breaks.
std::string fields_text(const std::vector<std::pair<std::string, std::string>>& fields, int columns);

/// How wide the terminal at `fd` is; 0: it is none.
int terminal_columns(int fd);

}  // namespace gyre::cli
