#pragma once

#include <string>

namespace gyre::jobs::http::internal {

/// `text` where it is a SHA-256 as 64 lower-case hexadecimal digits. HttpError(400) "InvalidChecksum".
std::string checked_sha256(const std::string& text);

}  // namespace gyre::jobs::http::internal
