#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gyre::cli {

/// "--ranks", "-n", …: every name of every option, hidden ones included.
std::vector<std::string> option_names(const CLI::App& app);

/// What shell completion needs to know of a program: `{"description", "options": [{"names", "description", "value",
/// "choices"}], "verbs": {NAME: …}}`, in the order in which they were added. `value` is what an option's value is
/// called ("DIR"), absent for flags; `choices` are the values it can have, absent where there is no list of them.
/// Options that --help does not show are left out.
nlohmann::ordered_json option_table(const CLI::App& app);

}  // namespace gyre::cli
