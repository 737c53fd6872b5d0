#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/metrics/sample.h"

namespace gyre::metrics {

/// Of a file that nobody has limited otherwise: about twenty million samples.
constexpr std::uint64_t kMostFileBytes = std::uint64_t{256} << 20;

/// Writes a job's metrics to a file (docs/formats/metrics.md). Each call is one write per block, so a reader, or
/// SIGKILL, finds everything that was added before. Not thread-safe. Errors name the file: kIo, kResourceExhausted on a
/// full disk; what is in the file then stays readable, and the writer can be used on.
class FileWriter {
 public:
  /// A new file, locked (flock) until the writer is gone. One that is there is renamed to PATH.1, or the first number
  /// that is free; see earlier(). Error(kInvalidArgument) if another writer has it.
  explicit FileWriter(const std::filesystem::path& path, std::uint64_t limit_bytes = kMostFileBytes);

  /// What samples need beyond the limits of size and of series is dropped, and counted. Preconditions: the names are
  /// names, and ranks not negative.
  void add(std::span<const Sample> samples);
  /// One fact about the run; the last one with the same key counts. Dropped where the file is full. A value longer than
  /// 64,000 bytes is cut.
  void note(std::string_view key, std::string_view value);

  /// What the launcher says of its ranks: a line of JSON (news.h). Dropped where the file is full, which samples leave
  /// room for.
  void event(std::string_view line);

  std::uint64_t dropped() const { return dropped_; }
  /// What the file of an earlier job is called now; empty if there was none.
  const std::filesystem::path& earlier() const { return earlier_; }

 private:
  /// False where the file is full.
  bool append(std::span<const std::byte> block, std::uint64_t leave = 0);

  std::filesystem::path path_;
  std::filesystem::path earlier_;
  UniqueFd file_;
  std::uint64_t limit_bytes_;
  std::uint64_t size_ = 0;
  std::uint64_t dropped_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> names_;
};

/// What is in a file, in its order. The views live during the call.
class FileVisitor {
 public:
  virtual ~FileVisitor() = default;
  virtual void sample(const Sample& sample) = 0;
  virtual void note(std::string_view key, std::string_view value) = 0;
  virtual void event(std::string_view line) { static_cast<void>(line); }
};

/// Reads a file that is still being written, again and again. Not thread-safe.
class FileReader {
 public:
  /// The visitor must outlive it. Errors as read_metrics().
  FileReader(const std::filesystem::path& path, FileVisitor& visitor);
  /// `what`: names the file in errors.
  FileReader(UniqueFd file, std::string what, FileVisitor& visitor);
  ~FileReader();

  /// Visits what has come since the last call, a block at a time. Returns how many bytes come behind the last block
  /// that is whole: one may be under way.
  std::uint64_t read();
  /// Whether a writer has the file, or may have it where locks are not known. False before a last read() means that
  /// nothing more will come.
  bool is_written() const;
  /// Whether the file has fewer bytes than were read of it: it is not the one that it was.
  bool was_cut() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether a regular file that can be read is there, and is one of metrics.
bool is_metrics_file(const std::filesystem::path& path);

/// Reads a file that may still be written, or whose writer was killed: up to the first block that is cut or damaged.
/// Returns how many bytes come behind that; 0 for a whole file. Reads a block at a time. Error(kNotFound, kIo);
/// kCorruptData if it is not a metrics file at all.
std::uint64_t read_metrics(const std::filesystem::path& path, FileVisitor& visitor);

/// The same of bytes in memory, `what` naming them in errors.
std::uint64_t read_metrics(std::span<const std::byte> bytes, std::string_view what, FileVisitor& visitor);

}  // namespace gyre::metrics
