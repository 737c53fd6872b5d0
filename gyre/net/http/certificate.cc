#include "gyre/net/http/certificate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/net/http/internal/tls.h"

namespace gyre::net::http {
namespace {

namespace fs = std::filesystem;
using internal::Freed;

using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using X509Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Memory = std::unique_ptr<BIO, Freed<BIO_free_all>>;

constexpr std::uint64_t kMostFileBytes = 65'536;
constexpr long kSecondsPerDay = 24L * 3'600;
/// Clients compare the fingerprint and look at no date.
constexpr long kLifetimeDays = 100L * 365;

template <typename Result>
Result required(Result result, const char* what) {
  if (!result) throw Error(ErrorCode::kInternal, fmt::format("OpenSSL cannot {}", what));
  return result;
}

std::string new_pem() {
  const Key key(required(EVP_EC_gen("P-256"), "make a key"));
  const X509Certificate certificate(required(X509_new(), "make a certificate"));
  X509* made = certificate.get();
  std::uint64_t serial = 0;
  required(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1, "make a number");
  required(X509_set_version(made, X509_VERSION_3) == 1, "make a certificate");
  required(ASN1_INTEGER_set_uint64(X509_get_serialNumber(made), serial >> 1) == 1, "number a certificate");
  X509_gmtime_adj(X509_getm_notBefore(made), -kSecondsPerDay);
  X509_gmtime_adj(X509_getm_notAfter(made), kLifetimeDays * kSecondsPerDay);
  X509_NAME* name = X509_get_subject_name(made);
  const unsigned char text[] = "gyre server";
  required(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1, "name a certificate");
  required(X509_set_issuer_name(made, name) == 1 && X509_set_pubkey(made, key.get()) == 1, "make a certificate");
  required(X509_sign(made, key.get(), EVP_sha256()) > 0, "sign a certificate");
  const Memory memory(required(BIO_new(BIO_s_mem()), "make a buffer"));
  required(PEM_write_bio_PrivateKey(memory.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1 &&
               PEM_write_bio_X509(memory.get(), made) == 1,
           "write a certificate");
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

/// In a file of its own first, so that nobody reads half of it.
void write_private(const fs::path& file, const std::string& text) {
  std::string draft = file.string() + ".XXXXXX";
  const UniqueFd fd(::mkostemp(draft.data(), O_CLOEXEC));  // For its user alone.
  if (!fd) throw system_error(fmt::format("cannot write {}", file.string()), errno);
  write_all(fd.get(), as_bytes(text), draft);
  if (::rename(draft.c_str(), file.c_str()) != 0) {
    throw system_error(fmt::format("cannot write {}", file.string()), errno);
  }
}

}  // namespace

Certificate certificate_in(const fs::path& file) {
  std::error_code failure;
  if (!fs::exists(file, failure)) write_private(file, new_pem());
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) throw system_error(file.string(), errno);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("others than its user can read {}, the server's key; remove it, and give users their files "
                            "anew, which name the server's fingerprint",
                            file.string()));
  }
  Certificate certificate{.pem = std::string(as_text(read_file(file, kMostFileBytes)))};
  const Memory memory(
      required(BIO_new_mem_buf(certificate.pem.data(), static_cast<int>(certificate.pem.size())), "make a buffer"));
  const X509Certificate parsed(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
  if (!parsed) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} holds no certificate; remove it, and it is made again", file.string()));
  }
  certificate.fingerprint = internal::fingerprint_of(parsed.get());
  return certificate;
}

bool is_fingerprint(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == internal::kFingerprintDigits && std::ranges::all_of(text, is_digit);
}

}  // namespace gyre::net::http
