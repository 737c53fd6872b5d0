#include "gyre/store/node/chunk_cipher.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/store/sources/text.h"

namespace gyre::store::node {

namespace {

constexpr std::size_t kNonceBytes = 12;
using Nonce = std::array<unsigned char, kNonceBytes>;

/// A key serves one file, so that a block's number is enough.
Nonce nonce_of(std::uint64_t number) {
  Nonce nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);
  return nonce;
}

unsigned char* bytes_of(std::span<std::byte> bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

void check_openssl(bool well) {
  if (!well) throw Error(ErrorCode::kUnsupported, "OpenSSL cannot encrypt with AES-256-GCM");
}

}  // namespace

struct BlockCipher::Context {
  EVP_CIPHER_CTX* sealing = nullptr;
  EVP_CIPHER_CTX* opening = nullptr;
  ~Context() {
    ::EVP_CIPHER_CTX_free(sealing);
    ::EVP_CIPHER_CTX_free(opening);
  }
};

BlockCipher::BlockCipher(const SecretKey& key) : context_(std::make_unique<Context>()) {
  const auto* const raw = reinterpret_cast<const unsigned char*>(key.data());
  context_->sealing = ::EVP_CIPHER_CTX_new();
  context_->opening = ::EVP_CIPHER_CTX_new();
  check_openssl(::EVP_EncryptInit_ex(context_->sealing, ::EVP_aes_256_gcm(), nullptr, raw, nullptr) == 1 &&
                ::EVP_DecryptInit_ex(context_->opening, ::EVP_aes_256_gcm(), nullptr, raw, nullptr) == 1);
}

BlockCipher::~BlockCipher() = default;

BlockTag BlockCipher::seal(std::uint64_t number, std::span<std::byte> block) {
  EVP_CIPHER_CTX* const context = context_->sealing;
  const Nonce nonce = nonce_of(number);
  BlockTag tag{};
  int done = 0;
  unsigned char rest = 0;
  check_openssl(::EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
                ::EVP_EncryptUpdate(context, bytes_of(block), &done, bytes_of(block), static_cast<int>(block.size())) ==
                    1 &&
                ::EVP_EncryptFinal_ex(context, &rest, &done) == 1 &&
                ::EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, sizeof tag, tag.data()) == 1);
  return tag;
}

bool BlockCipher::open(std::uint64_t number, std::span<std::byte> block, const BlockTag& tag) {
  EVP_CIPHER_CTX* const context = context_->opening;
  const Nonce nonce = nonce_of(number);
  BlockTag wanted = tag;
  int done = 0;
  unsigned char rest = 0;
  check_openssl(::EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
                ::EVP_DecryptUpdate(context, bytes_of(block), &done, bytes_of(block), static_cast<int>(block.size())) ==
                    1 &&
                ::EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, sizeof wanted, wanted.data()) == 1);
  if (::EVP_DecryptFinal_ex(context, &rest, &done) == 1) return true;
  std::ranges::fill(block, std::byte{0});
  return false;
}

ChunkSecret::ChunkSecret(const SecretKey& secret)
    : secret_(secret), names_(derive_key(secret, "gyre store: names of chunks")) {}

ChunkKey ChunkSecret::name_of(const ChunkKey& key) const {
  const SecretKey digest = derive_key(names_, key.hex());
  ChunkKey name;
  std::copy_n(digest.begin(), name.bytes.size(), name.bytes.begin());
  return name;
}

SecretKey ChunkSecret::file_key(const ChunkKey& key, std::uint64_t size_bytes, const ChunkSalt& salt) const {
  return derive_key(secret_, fmt::format("gyre store: chunk {} of {} bytes, {}", key.hex(), size_bytes, hex_of(salt)));
}

ChunkSalt random_salt() {
  ChunkSalt salt{};
  GYRE_CHECK(::RAND_bytes(reinterpret_cast<unsigned char*>(salt.data()), static_cast<int>(salt.size())) == 1);
  return salt;
}

}  // namespace gyre::store::node
