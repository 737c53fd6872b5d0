#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace gyre::data {

/// A file that is read in ranges, wherever it lies. Immutable while it is open; thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  /// For messages.
  virtual const std::string& name() const = 0;
  virtual std::uint64_t size_bytes() const = 0;
  /// Fills `into` with the bytes from `offset_bytes` on. Errors name the file: kCorruptData where it ends before, kIo.
  virtual void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const = 0;
};

/// How the readers of this folder get at a file by its name; called from several threads at once.
using FileOpener = std::function<std::unique_ptr<const ReadableFile>(const std::string& name)>;

/// A regular file of this machine. Error(kNotFound, kIo, kInvalidArgument where it is no regular file).
std::unique_ptr<const ReadableFile> open_local_file(const std::string& path);

}  // namespace gyre::data
