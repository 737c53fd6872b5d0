#include "gyre/store/node/chunk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::store::node {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBlockBytes = 64 * 1024;
/// So many blocks are read with one call, and checked while they are in the processor's cache.
constexpr std::uint64_t kBlocksAtOnce = 64;
constexpr std::string_view kMagic = "GYCHUNK1";
constexpr std::size_t kFooterBytes = 32;
constexpr std::string_view kSealedMagic = "GYCHUNK2";
constexpr std::size_t kSealedFooterBytes = 48;

std::uint64_t blocks_of(std::uint64_t size_bytes) { return (size_bytes + kBlockBytes - 1) / kBlockBytes; }

/// What stands behind a chunk's bytes.
Bytes tail_of(const ChunkKey& key, std::span<const std::byte> bytes) {
  ByteWriter writer;
  for (std::uint64_t at = 0; at < bytes.size(); at += kBlockBytes) {
    writer.u32(crc32c(bytes.subspan(at, std::min<std::uint64_t>(kBlockBytes, bytes.size() - at))));
  }
  writer.text(kMagic);
  writer.bytes(key.bytes);
  writer.u32(crc32c(writer.result()));
  writer.u32(0);
  return writer.take();
}

/// What stands behind an encrypted chunk's bytes.
Bytes sealed_tail_of(const ChunkKey& name, const std::vector<BlockTag>& tags, const ChunkSalt& salt) {
  ByteWriter writer;
  for (const BlockTag& tag : tags) writer.bytes(tag);
  writer.text(kSealedMagic);
  writer.bytes(name.bytes);
  writer.bytes(salt);
  writer.u32(crc32c(writer.result()));
  writer.u32(0);
  return writer.take();
}

[[noreturn]] void refuse_footer(const std::string& path) {
  throw Error(ErrorCode::kCorruptData, path + " is damaged: its footer is wrong");
}

void make_private_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder.parent_path(), failure);
  if (failure) throw system_error("cannot make the folder " + folder.parent_path().string(), failure.value());
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    throw system_error("cannot make the folder " + folder.string(), errno);
  }
  struct stat status{};
  if (::lstat(folder.c_str(), &status) != 0) throw system_error("cannot use the folder " + folder.string(), errno);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cannot use {}: it is not a folder of this account", folder.string()));
  }
  if (::chmod(folder.c_str(), S_IRWXU) != 0) throw system_error("cannot use the folder " + folder.string(), errno);
}

}  // namespace

fs::path ChunkFolder::file_of(const ChunkKey& key) const {
  const std::string name = (secret_ ? secret_->name_of(key) : key).hex();
  return chunks() / name.substr(0, 2) / name;
}

bool ChunkFolder::exists() const {
  std::error_code failure;
  return fs::exists(lock(), failure) &&
         (fs::is_directory(root_ / "chunks", failure) || fs::is_directory(root_ / "encrypted", failure));
}

UniqueFd ChunkFolder::take() const {
  make_private_folder(root_);
  const std::string path = lock().string();
  UniqueFd held(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!held) throw system_error("cannot write " + path, errno);
  if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw system_error("cannot lock " + path, errno);
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("another `gyre store serve` has {}; name another --job or --store-dir", root_.string()));
  }
  std::error_code failure;
  for (const char* name : {"new", secret_ ? "chunks" : "encrypted"}) fs::remove_all(root_ / name, failure);
  for (const fs::path& folder : {root_ / "new", chunks()}) make_private_folder(folder);
  return held;
}

void ChunkFolder::write(const ChunkKey& key, std::span<const std::byte> bytes) const {
  static std::atomic<std::uint64_t> number{0};
  const fs::path file = file_of(key);
  const fs::path draft = root_ / "new" / fmt::format("{}-{}", file.filename().string(), ++number);
  try {
    const UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!fd) throw system_error("cannot write " + draft.string(), errno);
    write_body(fd.get(), key, bytes, "cannot write " + draft.string());
    if (::mkdir(file.parent_path().c_str(), S_IRWXU) != 0 && errno != EEXIST) {
      throw system_error("cannot make the folder " + file.parent_path().string(), errno);
    }
    if (::rename(draft.c_str(), file.c_str()) != 0) throw system_error("cannot write " + file.string(), errno);
  } catch (const Error&) {
    ::unlink(draft.c_str());
    throw;
  }
}

void ChunkFolder::write_body(int fd, const ChunkKey& key, std::span<const std::byte> bytes,
                             const std::string& what) const {
  if (!secret_) {
    write_all(fd, bytes, what);
    write_all(fd, tail_of(key, bytes), what);
    return;
  }
  const ChunkSalt salt = random_salt();
  BlockCipher cipher(secret_->file_key(key, bytes.size(), salt));
  std::vector<BlockTag> tags;
  Bytes block;
  for (std::uint64_t at = 0; at < bytes.size(); at += kBlockBytes) {
    const auto plain = bytes.subspan(at, std::min<std::uint64_t>(kBlockBytes, bytes.size() - at));
    block.assign(plain.begin(), plain.end());
    tags.push_back(cipher.seal(tags.size(), block));
    write_all(fd, block, what);
  }
  write_all(fd, sealed_tail_of(secret_->name_of(key), tags, salt), what);
}

void ChunkFolder::remove(const ChunkKey& key) const { ::unlink(file_of(key).c_str()); }

void ChunkFolder::remove_all() const {
  std::error_code failure;
  fs::remove_all(chunks(), failure);
  make_private_folder(chunks());
}

void ChunkFolder::remove_unversioned(const Catalog& catalog) const {
  const auto& entries = catalog.manifest().entries;
  for (std::size_t entry = 0; entry < entries.size(); ++entry) {
    if (!entries[entry].object.version.empty()) continue;
    for (std::uint32_t number = 0; number < catalog.chunks_of(entry); ++number) {
      remove(catalog.key(catalog.chunk(entry, number)));
    }
  }
}

ChunkFolder::Usage ChunkFolder::usage() const {
  Usage usage;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(chunks(), failure)) {
    if (!entry.is_regular_file(failure)) continue;
    usage.bytes += entry.file_size(failure);
    ++usage.chunks;
  }
  return usage;
}

std::optional<ChunkFile> ChunkFile::open(const ChunkFolder& folder, const ChunkKey& key, std::uint64_t size_bytes) {
  std::string path = folder.file_of(key).string();
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) throw system_error("cannot read " + path, errno);
  ChunkFile file(std::move(fd), std::move(path), size_bytes);
  if (const ChunkSecret* const secret = folder.secret(); secret != nullptr) {
    file.read_sealed_footer(secret->name_of(key), key, *secret);
  } else {
    file.read_footer(key);
  }
  return file;
}

void ChunkFile::read_sealed_footer(const ChunkKey& name, const ChunkKey& key, const ChunkSecret& secret) {
  Bytes tail(blocks_of(size_bytes_) * sizeof(BlockTag) + kSealedFooterBytes);
  read_raw(size_bytes_, tail);
  ByteReader reader(tail, path_);
  tags_.resize(static_cast<std::size_t>(blocks_of(size_bytes_)));
  for (BlockTag& tag : tags_) std::ranges::copy(reader.bytes(tag.size()), tag.begin());
  const bool is_it = reader.text(kSealedMagic.size()) == kSealedMagic &&
                     std::ranges::equal(reader.bytes(name.bytes.size()), name.bytes);
  ChunkSalt salt{};
  std::ranges::copy(reader.bytes(salt.size()), salt.begin());
  const std::uint32_t found = crc32c(std::span(tail).first(reader.offset()));
  if (!is_it || found != reader.u32()) refuse_footer(path_);
  file_key_ = secret.file_key(key, size_bytes_, salt);
}

void ChunkFile::read_footer(const ChunkKey& key) {
  Bytes tail(blocks_of(size_bytes_) * sizeof(std::uint32_t) + kFooterBytes);
  read_raw(size_bytes_, tail);
  ByteReader reader(tail, path_);
  for (std::uint64_t i = 0; i < blocks_of(size_bytes_); ++i) checksums_.push_back(reader.u32());
  const bool is_it =
      reader.text(kMagic.size()) == kMagic && std::ranges::equal(reader.bytes(key.bytes.size()), key.bytes);
  const std::uint32_t found = crc32c(std::span(tail).first(reader.offset()));
  if (!is_it || found != reader.u32()) refuse_footer(path_);
}

void ChunkFile::read_raw(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t count = ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("cannot read " + path_, errno);
    if (count == 0) throw Error(ErrorCode::kCorruptData, path_ + " is damaged: it ends too early");
    into = into.subspan(static_cast<std::size_t>(count));
    offset_bytes += static_cast<std::uint64_t>(count);
  }
}

void ChunkFile::check_block(std::uint64_t number, std::span<std::byte> block, BlockCipher* cipher) const {
  if (cipher != nullptr ? cipher->open(number, block, tags_[number]) : crc32c(block) == checksums_[number]) return;
  throw Error(ErrorCode::kCorruptData, fmt::format("{} is damaged: the checksum of byte {} and those after it is wrong",
                                                   path_, number * kBlockBytes));
}

bool ChunkFile::is_in_place() const {
  struct stat named{};
  struct stat opened{};
  return ::lstat(path_.c_str(), &named) == 0 && ::fstat(fd_.get(), &opened) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

std::size_t ChunkFile::whole_blocks(std::uint64_t begin, std::size_t room_bytes) const {
  const std::uint64_t most = std::min<std::uint64_t>(room_bytes, kBlocksAtOnce * kBlockBytes);
  // The last block may be shorter.
  const bool reaches_end = size_bytes_ - begin <= most;
  return static_cast<std::size_t>(reaches_end ? size_bytes_ - begin : most / kBlockBytes * kBlockBytes);
}

void ChunkFile::read(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  std::optional<BlockCipher> cipher;
  if (file_key_) cipher.emplace(*file_key_);
  BlockCipher* const opening = cipher ? &*cipher : nullptr;
  Bytes block;
  while (!into.empty()) {
    const std::uint64_t number = offset_bytes / kBlockBytes;
    const std::uint64_t begin = number * kBlockBytes;
    const auto block_bytes = static_cast<std::size_t>(std::min(kBlockBytes, size_bytes_ - begin));
    const auto skipped = static_cast<std::size_t>(offset_bytes - begin);
    std::size_t wanted = std::min(block_bytes - skipped, into.size());
    if (wanted == block_bytes) {
      wanted = whole_blocks(begin, into.size());
      read_raw(begin, into.first(wanted));
      for (std::size_t at = 0; at < wanted; at += kBlockBytes) {
        check_block(number + at / kBlockBytes, into.subspan(at, std::min<std::size_t>(kBlockBytes, wanted - at)),
                    opening);
      }
    } else {
      block.resize(block_bytes);
      read_raw(begin, block);
      check_block(number, block, opening);
      std::ranges::copy(std::span(block).subspan(skipped, wanted), into.begin());
    }
    into = into.subspan(wanted);
    offset_bytes += wanted;
  }
}

}  // namespace gyre::store::node
