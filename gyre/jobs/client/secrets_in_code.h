#pragma once

#include <string>
#include <string_view>

namespace gyre::jobs::client {

/// What of Gyre's own secrets a file holds, in words: "a token for a job server". Empty for any other file. By its
/// content, so that a copy under another name is recognised; where that could as well be something else, also by its
/// `name` and by whether it `is_private`, which is to say that nobody but its user may read it. Pure.
///
/// The same in python/gyre/jobs/_code_archive.py.
std::string_view secret_in(std::string_view name, bool is_private, std::string_view content);

}  // namespace gyre::jobs::client
