#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace gyre::cli {

/// What `error`, which parsing the words of `app` has thrown, means to a person, in one sentence. CLI11's own words
/// name words that it did not expect from last to first, and suggest nothing. `app`: the verb whose words they were.
std::string describe(const CLI::ParseError& error, const CLI::App& app);

}  // namespace gyre::cli
