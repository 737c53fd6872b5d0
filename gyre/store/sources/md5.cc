#include "gyre/store/sources/md5.h"

#include <openssl/evp.h>

#include "gyre/base/check.h"

namespace gyre::store {

struct Md5Sum::Context {
  std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> context{::EVP_MD_CTX_new(), &::EVP_MD_CTX_free};
};

Md5Sum::Md5Sum() : context_(std::make_unique<Context>()) {
  GYRE_CHECK(::EVP_DigestInit_ex(context_->context.get(), ::EVP_md5(), nullptr) == 1);
}

Md5Sum::~Md5Sum() = default;

void Md5Sum::add(std::span<const std::byte> bytes) {
  GYRE_CHECK(::EVP_DigestUpdate(context_->context.get(), bytes.data(), bytes.size()) == 1);
}

Md5 Md5Sum::result() {
  Md5 sum{};
  GYRE_CHECK(::EVP_DigestFinal_ex(context_->context.get(), reinterpret_cast<unsigned char*>(sum.data()), nullptr) == 1);
  return sum;
}

}  // namespace gyre::store
