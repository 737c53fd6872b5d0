#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace gyre::cli {

/// Former names of options, each with today's name, dashes included.
using FormerNames = std::map<std::string, std::string, std::less<>>;

/// Parses the command line of a program without verbs, `app`'s name being the program's. Former names are accepted, but
/// neither --help nor --option-table shows them. `complete` is called when all could be read, and throws
/// CLI::ParseError for what is missing. It, and what reads an option's value, may throw Error as well. Returns nothing
/// where the program may go on, else its exit code: 0 after --help, --version and --option-table (the options as JSON,
/// for `gyre completion`), 2 after a mistake, which has been printed, with the option that was probably meant.
std::optional<int> parse_program_options(CLI::App& app, int argc, const char* const* argv,
                                         const FormerNames& former_names, const std::function<void()>& complete);

}  // namespace gyre::cli
