#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gyre/data/internal/arrow_column.h"
#include "gyre/data/readable_file.h"

namespace gyre::data::internal {

/// Memory that Arrow takes for what it reads, as far as `grant` allows. Outlives all that was read into it.
class ArrowMemory {
 public:
  /// What Arrow asks before it allocates; from several threads at once.
  class Grant {
   public:
    virtual ~Grant() = default;
    virtual bool reserve(std::uint64_t bytes) = 0;
    virtual void release(std::uint64_t bytes) = 0;
  };

  ArrowMemory(const parquet::Interface& arrow, Grant& grant);
  ~ArrowMemory() { arrow_.free_pool(pool_); }
  ArrowMemory(const ArrowMemory&) = delete;
  ArrowMemory& operator=(const ArrowMemory&) = delete;

 private:
  friend class ParquetFile;

  const parquet::Interface& arrow_;
  parquet::Pool* pool_;
};

/// Values of a column, as Arrow has handed them over.
class ArrowPart {
 public:
  /// Takes it.
  explicit ArrowPart(ArrowArray& array) : array_(array) { array.release = nullptr; }
  ~ArrowPart() {
    if (array_.release != nullptr) array_.release(&array_);
  }
  ArrowPart(ArrowPart&& other) noexcept : array_(other.array_) { other.array_.release = nullptr; }
  ArrowPart& operator=(ArrowPart&&) = delete;

  const ArrowArray& array() const { return array_; }

 private:
  ArrowArray array_;
};

/// An open Parquet file. Errors name the file: kCorruptData, kUnsupported, kIo; kResourceExhausted where the memory is
/// not granted. Not thread-safe.
class ParquetFile {
 public:
  /// Reads the footer. `arrow` and `memory` must outlive it.
  ParquetFile(const parquet::Interface& arrow, std::unique_ptr<const ReadableFile> file, ArrowMemory& memory);
  ~ParquetFile();
  ParquetFile(const ParquetFile&) = delete;
  ParquetFile& operator=(const ParquetFile&) = delete;

  const std::string& name() const { return file_->name(); }
  std::uint64_t row_groups() const { return arrow_.row_groups(opened_); }
  std::uint64_t rows(std::uint64_t row_group) const { return arrow_.rows(opened_, row_group); }
  // As the file says: hints only. Bytes are those before compression.
  std::uint64_t leaf_values(std::uint64_t row_group, std::uint64_t leaf) const;
  std::uint64_t leaf_bytes(std::uint64_t row_group, std::uint64_t leaf) const;
  /// Where they lie, within the file; the same.
  FileRange leaf_range(std::uint64_t row_group, std::uint64_t leaf) const;
  std::vector<ListedColumn> columns() const;
  const ReadableFile& file() const { return *file_; }

  /// The values of a column in one row group, one part after the other; their layout is checked.
  std::vector<ArrowPart> read(std::uint64_t row_group, const ListedColumn& column);

  /// Of reading bytes, since it was opened.
  std::chrono::nanoseconds source_time() const { return source_time_; }

 private:
  static bool read_at(void* context, std::uint64_t offset_bytes, void* into, std::uint64_t bytes);
  void check_ends() const;
  std::uint64_t rows_per_part(std::uint64_t row_group, std::uint64_t leaf) const;
  /// Throws what `outcome` says; `where` is put in front.
  void check(parquet::Outcome outcome, const std::string& where, const char* why) const;

  const parquet::Interface& arrow_;
  std::unique_ptr<const ReadableFile> file_;
  parquet::File* opened_ = nullptr;
  std::exception_ptr failure_;  // Of read_at().
  std::chrono::nanoseconds source_time_{0};
};

}  // namespace gyre::data::internal
