#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gyre/base/secret_key.h"
#include "gyre/store/node/catalog.h"

namespace gyre::store::node {

/// What makes the key of one chunk's file another one than those of all others, also of the same chunk written anew.
using ChunkSalt = std::array<std::byte, 16>;
/// Proves that a block is the one that was sealed.
using BlockTag = std::array<std::byte, 16>;

/// Seals and opens the blocks of one chunk's file with AES-256-GCM. Not thread-safe.
class BlockCipher {
 public:
  explicit BlockCipher(const SecretKey& key);
  ~BlockCipher();
  BlockCipher(const BlockCipher&) = delete;
  BlockCipher& operator=(const BlockCipher&) = delete;

  /// Encrypts in place. A cipher seals each number once.
  BlockTag seal(std::uint64_t number, std::span<std::byte> block);
  /// Decrypts in place; false, and zeros, where the block is not the one that was sealed under this number.
  bool open(std::uint64_t number, std::span<std::byte> block, const BlockTag& tag);

 private:
  struct Context;

  std::unique_ptr<Context> context_;
};

/// The secret under which a store's chunks lie on a disk. Keys are derived from it (HMAC-SHA256): one for the names of
/// the files, which do not show what they hold, and one for each file. Immutable; thread-safe.
class ChunkSecret {
 public:
  explicit ChunkSecret(const SecretKey& secret);

  const SecretKey& secret() const { return secret_; }
  ChunkKey name_of(const ChunkKey& key) const;
  SecretKey file_key(const ChunkKey& key, std::uint64_t size_bytes, const ChunkSalt& salt) const;

 private:
  const SecretKey secret_;
  const SecretKey names_;
};

ChunkSalt random_salt();

}  // namespace gyre::store::node
