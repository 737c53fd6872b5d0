#include "gyre/data/internal/parquet_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"

namespace gyre::data::internal {
namespace {

constexpr std::string_view kMagic = "PAR1";
constexpr std::string_view kEncryptedMagic = "PARE";
constexpr std::size_t kWhyBytes = 1024;
/// Magic at both ends, and the length of the footer.
constexpr std::uint64_t kLeastBytes = 12;
/// Of a column, before compression; numbers are often encoded in less than they take here.
constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kPartValues = std::uint64_t{1} << 17;
constexpr std::uint64_t kMostParts = 1024;

}  // namespace

ArrowMemory::ArrowMemory(const parquet::Interface& arrow, Grant& grant) : arrow_(arrow) {
  const parquet::Memory memory{
      .context = &grant,
      .reserve = [](void* context, std::uint64_t bytes) { return static_cast<Grant*>(context)->reserve(bytes); },
      .release = [](void* context, std::uint64_t bytes) { static_cast<Grant*>(context)->release(bytes); }};
  pool_ = arrow.make_pool(&memory);
  if (pool_ == nullptr) throw std::bad_alloc();
}

ParquetFile::ParquetFile(const parquet::Interface& arrow, std::unique_ptr<const ReadableFile> file, ArrowMemory& memory)
    : arrow_(arrow), file_(std::move(file)) {
  check_ends();
  const parquet::Source source{.context = this, .size_bytes = file_->size_bytes(), .read_at = &read_at};
  std::array<char, kWhyBytes> why{};
  check(arrow_.open(&source, memory.pool_, &opened_, {why.data(), why.size()}), "its footer cannot be read",
        why.data());
}

ParquetFile::~ParquetFile() {
  if (opened_ != nullptr) arrow_.close(opened_);
}

bool ParquetFile::read_at(void* context, std::uint64_t offset_bytes, void* into, std::uint64_t bytes) {
  auto& self = *static_cast<ParquetFile*>(context);
  const auto began = SteadyClock::now();
  try {
    self.file_->read_at(offset_bytes, {static_cast<std::byte*>(into), static_cast<std::size_t>(bytes)});
  } catch (...) {
    self.failure_ = std::current_exception();
    return false;
  }
  self.source_time_ += SteadyClock::now() - began;
  return true;
}

void ParquetFile::check_ends() const {
  const std::uint64_t size = file_->size_bytes();
  std::array<std::byte, kMagic.size()> first{};
  std::array<std::byte, kMagic.size()> last{};
  if (size >= kLeastBytes) {
    file_->read_at(0, first);
    file_->read_at(size - last.size(), last);
  }
  if (as_text(first) == kEncryptedMagic || as_text(last) == kEncryptedMagic) {
    throw Error(ErrorCode::kUnsupported, fmt::format("{} is an encrypted Parquet file, which is not read", name()));
  }
  if (as_text(first) != kMagic) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} is not a Parquet file: {}", name(),
                            size < kLeastBytes ? fmt::format("it has {} bytes", size) : "it does not begin with PAR1"));
  }
  if (as_text(last) != kMagic) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} is cut off: a Parquet file ends with its footer and PAR1, and this one, of {} bytes, "
                            "does not; copy or write it again",
                            name(), size));
  }
}

void ParquetFile::check(parquet::Outcome outcome, const std::string& where, const char* why) const {
  if (outcome == parquet::Outcome::kDone) return;
  if (outcome == parquet::Outcome::kSourceFailed && failure_ != nullptr) std::rethrow_exception(failure_);
  ErrorCode code = ErrorCode::kCorruptData;
  if (outcome == parquet::Outcome::kUnsupported) code = ErrorCode::kUnsupported;
  if (outcome == parquet::Outcome::kNoMemory) code = ErrorCode::kResourceExhausted;
  throw Error(code, fmt::format("{}: {}: {}", name(), where, why));
}

std::uint64_t ParquetFile::leaf_bytes(std::uint64_t row_group, std::uint64_t leaf) const {
  return arrow_.leaf_bytes(opened_, row_group, leaf);
}

std::uint64_t ParquetFile::leaf_values(std::uint64_t row_group, std::uint64_t leaf) const {
  return arrow_.leaf_values(opened_, row_group, leaf);
}

FileRange ParquetFile::leaf_range(std::uint64_t row_group, std::uint64_t leaf) const {
  const parquet::Range range = arrow_.leaf_range(opened_, row_group, leaf);
  const std::uint64_t begin = std::min(range.offset_bytes, file_->size_bytes());
  return {.offset_bytes = begin, .size_bytes = std::min(range.size_bytes, file_->size_bytes() - begin)};
}

std::vector<ListedColumn> ParquetFile::columns() const {
  std::array<char, kWhyBytes> why{};
  ArrowSchema schema{};
  check(arrow_.schema(opened_, &schema, {why.data(), why.size()}), "its schema cannot be read", why.data());
  ListedColumns listed;
  try {
    listed = list_columns(schema);
  } catch (...) {
    schema.release(&schema);
    throw;
  }
  schema.release(&schema);
  if (listed.leaves != arrow_.leaves(opened_)) {
    throw Error(ErrorCode::kUnsupported, fmt::format("{}: Arrow's schema has {} columns of values, and the file's {}",
                                                     name(), listed.leaves, arrow_.leaves(opened_)));
  }
  return std::move(listed.columns);
}

/// What Arrow needs besides a part's values, several times as much, so stays in the processor's caches.
std::uint64_t ParquetFile::rows_per_part(std::uint64_t row_group, std::uint64_t leaf) const {
  const std::uint64_t by_bytes = leaf_bytes(row_group, leaf) / kPartBytes;
  const std::uint64_t by_values = arrow_.leaf_values(opened_, row_group, leaf) / kPartValues;
  return std::max<std::uint64_t>(rows(row_group) / (std::min(std::max(by_bytes, by_values), kMostParts) + 1), 1);
}

std::vector<ArrowPart> ParquetFile::read(std::uint64_t row_group, const ListedColumn& column) {
  std::vector<ArrowPart> read;
  // A vector that grows may throw, which must not pass through the plugin: a part that found no place is released.
  const parquet::Parts parts{.context = &read, .add = [](void* context, ArrowArray* part) {
                               ArrowPart taken(*part);
                               try {
                                 static_cast<std::vector<ArrowPart>*>(context)->push_back(std::move(taken));
                               } catch (const std::bad_alloc&) {
                                 return;  // The rows that are missing are noticed.
                               }
                             }};
  std::array<char, kWhyBytes> why{};
  const std::string where = fmt::format("row group {}, column '{}'", row_group, column.path);
  check(arrow_.read(opened_, row_group, column.leaf, rows_per_part(row_group, column.leaf), &parts,
                    {why.data(), why.size()}),
        where, why.data());
  std::uint64_t rows = 0;
  try {
    for (const ArrowPart& part : read) {
      check_layout(part.array(), *column.type);
      rows += static_cast<std::uint64_t>(part.array().length);
    }
  } catch (Error& error) {
    error.add_context(fmt::format("{}: {}", name(), where));
    throw;
  }
  if (rows != this->rows(row_group)) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}: it has {} rows, and its row group {}", name(), where,
                                                     rows, this->rows(row_group)));
  }
  return read;
}

}  // namespace gyre::data::internal
