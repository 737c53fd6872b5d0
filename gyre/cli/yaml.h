#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gyre::cli {

/// The same value as YAML 1.2, in blocks, with a line break at its end. Texts that YAML could take for something else
/// stand in double quotes.
std::string to_yaml(const nlohmann::json& value);

}  // namespace gyre::cli
