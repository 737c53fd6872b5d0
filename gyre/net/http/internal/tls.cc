#include "gyre/net/http/internal/tls.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <array>

#include "gyre/base/error.h"

namespace gyre::net::http::internal {
namespace {

TlsContext make_context() {
  TlsContext context(SSL_CTX_new(TLS_method()));
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1) {
    throw Error(ErrorCode::kInternal, "OpenSSL cannot make a context for TLS 1.3");
  }
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  return context;
}

}  // namespace

TlsContext make_server_context(const Certificate& certificate) {
  TlsContext context = make_context();
  SSL_CTX_set_num_tickets(context.get(), 0);
  const std::unique_ptr<BIO, Freed<BIO_free_all>> memory(
      BIO_new_mem_buf(certificate.pem.data(), static_cast<int>(certificate.pem.size())));
  const std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>> key(
      memory ? PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, nullptr) : nullptr);
  const std::unique_ptr<X509, Freed<X509_free>> own(memory ? PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)
                                                           : nullptr);
  if (!key || !own || SSL_CTX_use_certificate(context.get(), own.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    throw Error(ErrorCode::kInvalidArgument, "the server's certificate and key cannot be used");
  }
  return context;
}

TlsContext make_client_context() {
  TlsContext context = make_context();
  // Nobody vouches for the certificate; the client compares its fingerprint before it sends anything.
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  return context;
}

std::string fingerprint_of(const X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest.data(), &size) != 1) {
    throw Error(ErrorCode::kInternal, "OpenSSL cannot hash a certificate");
  }
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(digest[i]));
  return text;
}

}  // namespace gyre::net::http::internal
