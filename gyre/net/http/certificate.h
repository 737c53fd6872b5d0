#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gyre::net::http {

/// What a server proves itself with over TLS: a key, and a certificate that nobody else vouches for. Clients know it by
/// its fingerprint, which they get on another way, with their token.
struct Certificate {
  std::string pem{};          ///< Key and certificate.
  std::string fingerprint{};  ///< SHA-256 of the certificate, 64 hexadecimal digits.
};

/// That of the file, which only its user may be able to read; made where there is no such file. Error(kIo |
/// kInvalidArgument).
Certificate certificate_in(const std::filesystem::path& file);

/// Whether the text is 64 hexadecimal digits, in lower case.
bool is_fingerprint(std::string_view text);

}  // namespace gyre::net::http
