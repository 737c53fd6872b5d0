#pragma once

#include <nlohmann/json.hpp>

namespace gyre::launch {

// Arguments, paths and variables of the environment are bytes, which need not be UTF-8; JSON has text only. In a job's
// description each byte of a string is therefore one character, U+0000 to U+00FF (Latin-1); ASCII stays as it is.

/// `description` with every string written that way.
nlohmann::json with_bytes_as_characters(nlohmann::json description);

/// The other way. Error(kInvalidArgument) when a string holds a character above U+00FF.
nlohmann::json with_characters_as_bytes(nlohmann::json description);

}  // namespace gyre::launch
