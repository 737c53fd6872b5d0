#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gyre::page::internal {

/// In one line; bytes that are not UTF-8 become replacement characters.
std::string text_of(const nlohmann::json& value);

}  // namespace gyre::page::internal
