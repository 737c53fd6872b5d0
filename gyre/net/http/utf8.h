#pragma once

#include <cstddef>
#include <string_view>

namespace gyre::net::http {

/// Whether `text` is well-formed UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// How many bytes of `text` can be shown now without splitting a character: all of it but an incomplete character at
/// its end, whose rest may still come. Bytes that can never become a character count as whole.
std::size_t whole_characters(std::string_view text);

}  // namespace gyre::net::http
