#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/store/node/catalog.h"
#include "gyre/store/node/chunk_cipher.h"

namespace gyre::store::node {

// A chunk on the disk is a file: its bytes, a CRC-32C for each 64 KiB of them, and a footer of 32 bytes:
//   magic "GYCHUNK1", the chunk's key (16 bytes), CRC-32C of everything behind the bytes but itself (u32), zeros (u32)
// Of an encrypted store the bytes of each 64 KiB are encrypted with AES-256-GCM, and in place of the checksums stand
// the tags (16 bytes each), then:
//   magic "GYCHUNK2", what the file is named after (16 bytes), the salt of its key (16 bytes), CRC-32C (u32), zeros
//   (u32)
// It has its name only when it is complete, and nothing of it is handed out before it was compared with its checksums,
// at every reading: a file that a kill, a power failure or a failing disk has damaged is found wherever it is read.

/// Where the chunks of one store lie on a node: DIR/JOB, which others must not enter (mode 0700).
class ChunkFolder {
 public:
  /// `root` need not exist yet; nothing is made. With a secret, chunks are encrypted under it.
  explicit ChunkFolder(std::filesystem::path root, std::shared_ptr<const ChunkSecret> secret = nullptr)
      : root_(std::move(root)), secret_(std::move(secret)) {}

  const std::filesystem::path& root() const { return root_; }
  const ChunkSecret* secret() const { return secret_.get(); }
  std::filesystem::path file_of(const ChunkKey& key) const;
  std::filesystem::path socket() const { return root_ / "socket"; }

  /// Whether it has been made: a daemon runs here, or has run.
  bool exists() const;
  /// Makes it for this process alone, which keeps it as long as the result lives; removes what an earlier one was just
  /// writing, and chunks of an earlier one that were encrypted where these are not, or the other way round. Error(kIo);
  /// kInvalidArgument where another daemon has it, or the folder is another account's.
  UniqueFd take() const;
  /// Error(kIo, kResourceExhausted): then nothing is left of it.
  void write(const ChunkKey& key, std::span<const std::byte> bytes) const;
  void remove(const ChunkKey& key) const;
  /// All chunks.
  void remove_all() const;
  /// Removes the chunks of objects whose source does not say when they change: an earlier daemon's may be old.
  void remove_unversioned(const Catalog& catalog) const;
  /// Bytes and files of all chunks, those of other data sets and versions included.
  struct Usage {
    std::uint64_t bytes = 0;
    std::uint64_t chunks = 0;
  };
  Usage usage() const;

 private:
  std::filesystem::path lock() const { return root_ / "lock"; }
  std::filesystem::path chunks() const { return root_ / (secret_ ? "encrypted" : "chunks"); }
  void write_body(int fd, const ChunkKey& key, std::span<const std::byte> bytes, const std::string& what) const;

  std::filesystem::path root_;
  std::shared_ptr<const ChunkSecret> secret_;
};

/// A chunk that is on this node's disk. Immutable; thread-safe.
class ChunkFile {
 public:
  /// Nothing where it is not there. Error(kCorruptData) where the file is not that chunk; kIo.
  static std::optional<ChunkFile> open(const ChunkFolder& folder, const ChunkKey& key, std::uint64_t size_bytes);

  /// Fills `into` with the bytes from `offset_bytes` on, compared with their checksums. Error(kCorruptData, kIo).
  void read(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// False once the file was removed or replaced by another.
  bool is_in_place() const;

 private:
  ChunkFile(UniqueFd fd, std::string path, std::uint64_t size_bytes)
      : fd_(std::move(fd)), path_(std::move(path)), size_bytes_(size_bytes) {}

  void read_footer(const ChunkKey& key);
  void read_sealed_footer(const ChunkKey& name, const ChunkKey& key, const ChunkSecret& secret);
  void read_raw(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// How many bytes of whole blocks, from the beginning of one on, are read at once where so many have room: at least
  /// this one.
  std::size_t whole_blocks(std::uint64_t begin, std::size_t room_bytes) const;
  /// Compares a block with its checksum, or decrypts it. `cipher`: of this reading; null where nothing is encrypted.
  void check_block(std::uint64_t number, std::span<std::byte> block, BlockCipher* cipher) const;

  UniqueFd fd_;
  std::string path_;
  std::uint64_t size_bytes_;
  std::vector<std::uint32_t> checksums_{};
  std::optional<SecretKey> file_key_{};  ///< Of an encrypted one.
  std::vector<BlockTag> tags_{};
};

}  // namespace gyre::store::node
