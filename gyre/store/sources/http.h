#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gyre/store/sources/source.h"

namespace gyre::store {

/// What one URL names: a file, or, where its path ends with '/', all files of the server's index page and of those
/// below it.
std::unique_ptr<Source> open_http_source(const std::string& url);

/// Files by their URLs, each named after the last part of its path. `name` for messages.
/// Error(kInvalidArgument) where two would have one name, or a text is no URL.
std::unique_ptr<Source> open_http_files(std::string name, const std::vector<std::string>& urls);

}  // namespace gyre::store
