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
constexpr std::string_view kMagic = "GYCHUNK1";
constexpr std::size_t kFooterBytes = 32;

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

void make_private_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder.parent_path(), failure);
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
  const std::string name = key.hex();
  return root_ / "chunks" / name.substr(0, 2) / name;
}

bool ChunkFolder::exists() const {
  std::error_code failure;
  return fs::exists(lock(), failure) && fs::is_directory(root_ / "chunks", failure);
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
  fs::remove_all(root_ / "new", failure);
  for (const char* name : {"new", "chunks"}) make_private_folder(root_ / name);
  return held;
}

void ChunkFolder::write(const ChunkKey& key, std::span<const std::byte> bytes) const {
  static std::atomic<std::uint64_t> number{0};
  const fs::path file = file_of(key);
  const fs::path draft = root_ / "new" / fmt::format("{}-{}", key.hex(), ++number);
  try {
    const UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!fd) throw system_error("cannot write " + draft.string(), errno);
    write_all(fd.get(), bytes, "cannot write " + draft.string());
    write_all(fd.get(), tail_of(key, bytes), "cannot write " + draft.string());
    if (::mkdir(file.parent_path().c_str(), S_IRWXU) != 0 && errno != EEXIST) {
      throw system_error("cannot make the folder " + file.parent_path().string(), errno);
    }
    if (::rename(draft.c_str(), file.c_str()) != 0) throw system_error("cannot write " + file.string(), errno);
  } catch (const Error&) {
    ::unlink(draft.c_str());
    throw;
  }
}

void ChunkFolder::remove(const ChunkKey& key) const { ::unlink(file_of(key).c_str()); }

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
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root_ / "chunks", failure)) {
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
  file.read_footer(key);
  return file;
}

void ChunkFile::read_footer(const ChunkKey& key) {
  Bytes tail(blocks_of(size_bytes_) * sizeof(std::uint32_t) + kFooterBytes);
  read_raw(size_bytes_, tail);
  ByteReader reader(tail, path_);
  for (std::uint64_t i = 0; i < blocks_of(size_bytes_); ++i) checksums_.push_back(reader.u32());
  const bool is_it =
      reader.text(kMagic.size()) == kMagic && std::ranges::equal(reader.bytes(key.bytes.size()), key.bytes);
  const std::uint32_t found = crc32c(std::span(tail).first(reader.offset()));
  if (!is_it || found != reader.u32()) throw Error(ErrorCode::kCorruptData, path_ + " is damaged: its footer is wrong");
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

void ChunkFile::check_block(std::uint64_t number, std::span<const std::byte> block) const {
  if (crc32c(block) == checksums_[number]) return;
  throw Error(ErrorCode::kCorruptData, fmt::format("{} is damaged: the checksum of byte {} and those after it is wrong",
                                                   path_, number * kBlockBytes));
}

bool ChunkFile::is_in_place() const {
  struct stat named{};
  struct stat opened{};
  return ::lstat(path_.c_str(), &named) == 0 && ::fstat(fd_.get(), &opened) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

void ChunkFile::read(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  Bytes block;
  while (!into.empty()) {
    const std::uint64_t number = offset_bytes / kBlockBytes;
    const std::uint64_t begin = number * kBlockBytes;
    const auto block_bytes = static_cast<std::size_t>(std::min(kBlockBytes, size_bytes_ - begin));
    const auto skipped = static_cast<std::size_t>(offset_bytes - begin);
    const std::size_t wanted = std::min(block_bytes - skipped, into.size());
    if (wanted == block_bytes) {
      read_raw(begin, into.first(wanted));
      check_block(number, into.first(wanted));
    } else {
      block.resize(block_bytes);
      read_raw(begin, block);
      check_block(number, block);
      std::ranges::copy(std::span(block).subspan(skipped, wanted), into.begin());
    }
    into = into.subspan(wanted);
    offset_bytes += wanted;
  }
}

}  // namespace gyre::store::node
