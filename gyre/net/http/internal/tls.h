#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <string>

#include "gyre/net/http/certificate.h"

// What TLS of a server with a certificate needs of OpenSSL. Between agents it is psk_tls instead.
namespace gyre::net::http::internal {

template <auto kFree>
struct Freed {
  template <typename Freeable>
  void operator()(Freeable* freeable) const {
    kFree(freeable);
  }
};

using TlsContext = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using TlsConnection = std::unique_ptr<SSL, Freed<SSL_free>>;

inline constexpr std::size_t kFingerprintDigits = 64;

/// TLS 1.3 alone. Error(kInvalidArgument) where the certificate cannot be used.
TlsContext make_server_context(const Certificate& certificate);
TlsContext make_client_context();

std::string fingerprint_of(const X509* certificate);

}  // namespace gyre::net::http::internal
