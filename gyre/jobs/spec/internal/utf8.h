#pragma once

#include <cstddef>
#include <string_view>

namespace gyre::jobs::spec {

/// Whether it continues a UTF-8 character.
bool is_continuation(char byte);

/// How many bytes the UTF-8 character at the front of `text`, which has some, has; 0 where there is none.
std::size_t character_bytes(std::string_view text);

}  // namespace gyre::jobs::spec
