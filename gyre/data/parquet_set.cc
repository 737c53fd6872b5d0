#include "gyre/data/parquet_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/parse.h"
#include "gyre/data/internal/block_ends.h"
#include "gyre/data/internal/file_versions.h"
#include "gyre/data/internal/one_per_budget.h"
#include "gyre/data/internal/parallel.h"
#include "gyre/data/internal/parquet_file.h"
#include "gyre/data/internal/parquet_library.h"
#include "gyre/data/internal/row_group_cache.h"

namespace gyre::data {
namespace {

using internal::ArrowMemory;
using internal::ArrowRow;
using internal::ListedColumn;
using internal::ParquetFile;
using internal::RowGroup;
using internal::RowGroupCache;

/// Of row groups, where there is no budget, and of what a footer needs besides.
constexpr std::uint64_t kUnbudgetedBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostRows = std::uint64_t{1} << 62;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;  // That are believed, of a column in a row group.
constexpr std::size_t kAlignment = 8;

/// A column that is read, and the features that it is.
struct Column {
  ListedColumn listed;
  std::vector<std::string> names;
};

struct File {
  std::string name;
  std::uint64_t first = 0;            ///< Row, of all.
  std::vector<std::uint64_t> ends{};  ///< Of each row group: the row behind its last one, within the file.
  std::vector<Column> columns{};
  std::vector<std::vector<FileRange>> ranges{};  ///< Of each row group: where these columns lie. Of files afar alone.
  std::uint64_t bytes = 0;                       ///< Of these columns before compression, as the footer says …
  std::uint64_t largest_group_bytes = 0;         ///< … and about what the largest row group takes when it is decoded.

  std::uint64_t rows() const { return ends.empty() ? 0 : ends.back(); }
  std::uint64_t rows_of(std::uint64_t group) const { return ends[group] - (group == 0 ? 0 : ends[group - 1]); }
};

struct Place {
  std::size_t file = 0;
  std::uint64_t row = 0;  ///< Within the file.
  std::uint64_t row_group = 0;
  std::uint64_t row_in_group = 0;
};

/// What a footer takes from Arrow's memory.
class FooterGrant : public ArrowMemory::Grant {
 public:
  bool reserve(std::uint64_t bytes) override {
    if (bytes > kUnbudgetedBytes - used_) return false;
    used_ += bytes;
    return true;
  }
  void release(std::uint64_t bytes) override { used_ -= bytes; }

 private:
  std::uint64_t used_ = 0;
};

/// Of one value in memory, its own bytes apart where it is a byte string.
std::uint64_t value_bytes(const internal::ArrowColumn& type) {
  using Values = internal::ArrowColumn::Values;
  if (type.index) return size_bytes(*type.index);
  switch (type.values) {
    case Values::kNumbers: return size_bytes(type.number);
    case Values::kBits: return 1;
    case Values::kHalfFloats: return sizeof(std::uint16_t);
    case Values::kStrings: return sizeof(std::int32_t);
    case Values::kLargeStrings: return sizeof(std::int64_t);
    case Values::kFixedStrings: return type.string_bytes;
  }
  return 1;
}

/// Footers may say anything.
std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  return a + std::min(b, std::numeric_limits<std::uint64_t>::max() - a);
}

bool is_string(const ListedColumn& column) {
  using Values = internal::ArrowColumn::Values;
  return column.type && (column.type->values == Values::kStrings || column.type->values == Values::kLargeStrings);
}

constexpr std::string_view kBytesWithin = ".bytes";

const ListedColumn* find(const std::vector<ListedColumn>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &ListedColumn::path);
  if (found != all.end()) return &*found;
  const auto within = std::ranges::find(all, name + std::string(kBytesWithin), &ListedColumn::path);
  return within != all.end() && is_string(*within) ? &*within : nullptr;
}

/// The columns of those names, once each.
std::vector<Column> wanted_columns(const std::vector<ListedColumn>& all, const std::vector<std::string>& names,
                                   const std::string& file) {
  std::vector<Column> columns;
  for (const std::string& name : names) {
    const ListedColumn* const listed = find(all, name);
    if (listed == nullptr) {
      std::vector<std::string_view> known;
      for (const ListedColumn& column : all) known.push_back(column.path);
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has no column '{}'; it has: {}", file, name, fmt::join(known, ", ")));
    }
    if (!listed->type) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: column '{}' is of the type {}, which is not read: numbers, byte strings, text and "
                              "lists of these are",
                              file, listed->path, listed->type_name));
    }
    const auto again =
        std::ranges::find_if(columns, [&](const Column& column) { return column.listed.leaf == listed->leaf; });
    if (again == columns.end()) {
      columns.push_back({*listed, {name}});
    } else {
      again->names.push_back(name);
    }
  }
  return columns;
}

std::vector<Column> all_columns(const std::vector<ListedColumn>& all, const std::string& file) {
  std::vector<Column> columns;
  for (const ListedColumn& listed : all) {
    if (!listed.type) continue;
    columns.push_back({listed, {listed.path}});
    if (listed.path.ends_with(kBytesWithin) && is_string(listed)) {
      columns.back().names.push_back(listed.path.substr(0, listed.path.size() - kBytesWithin.size()));
    }
  }
  if (columns.empty()) {
    throw Error(ErrorCode::kUnsupported, fmt::format("{} has no column of a type that is read", file));
  }
  return columns;
}

/// Where the columns lie in a row group; neighbours are one range.
std::vector<FileRange> ranges_of(const ParquetFile& file, std::uint64_t group, const std::vector<Column>& columns) {
  std::vector<FileRange> ranges;
  for (const Column& column : columns) {
    const FileRange range = file.leaf_range(group, column.listed.leaf);
    if (!ranges.empty() && ranges.back().offset_bytes + ranges.back().size_bytes == range.offset_bytes) {
      ranges.back().size_bytes += range.size_bytes;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

class ParquetSet : public SampleSet {
 public:
  ParquetSet(std::vector<std::string> names, FileOpener open, const ParquetOptions& options)
      : arrow_(internal::parquet_library(options.pyarrow_folder)),
        open_(std::move(open)),
        is_far_(open_.folders().are_far()),
        versions_(names.size()) {
    if (names.empty()) throw Error(ErrorCode::kInvalidArgument, "a set of Parquet files needs at least one file");
    for (std::string& name : names) files_.push_back({.name = std::move(name)});
    internal::for_each_index(files_.size(), options.threads, "reading footers",
                             [&](std::size_t i) { read_footer(i, options.columns); });
    for (File& file : files_) {
      file.first = count_;
      if (file.rows() > kMostRows - count_) {
        throw Error(ErrorCode::kCorruptData, fmt::format("{} is said to have {} rows", file.name, file.rows()));
      }
      count_ += file.rows();
      largest_row_group_bytes_ = std::max(largest_row_group_bytes_, file.largest_group_bytes);
      std::uint64_t begin = 0;
      for (const std::uint64_t end : file.ends) {
        largest_row_group_ = std::max(largest_row_group_, end - begin);
        begin = end;
      }
    }
    if (count_ == 0) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{} file{} ({}, …) hold no row", files_.size(),
                                                           files_.size() == 1 ? "" : "s", files_.front().name));
    }
  }

  std::uint64_t count() const override { return count_; }
  SampleBlocks blocks() const override;
  std::string name_of(std::uint64_t sample) const override {
    const Place place = place_of(sample);
    return fmt::format("{}:{}", files_[place.file].name, place.row);
  }
  std::string advice_on_full_shuffle(std::uint64_t budget_bytes) const override;
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

 private:
  friend class ParquetReader;

  void read_footer(std::size_t number, const std::vector<std::string>& columns);
  /// In the version whose footer was read.
  std::unique_ptr<const ReadableFile> open(std::size_t number) const {
    auto file = open_(files_[number].name);
    versions_.check(number, *file);
    return file;
  }
  Place place_of(std::uint64_t sample) const;

  const parquet::Interface& arrow_;
  const FileOpener open_;
  const bool is_far_;
  mutable internal::FileVersions versions_;
  std::vector<File> files_;
  std::uint64_t count_ = 0;
  std::uint64_t largest_row_group_ = 1;

  std::uint64_t largest_row_group_bytes_ = 0;
  mutable internal::OnePerBudget<RowGroupCache> caches_;
};

class ParquetReader : public SampleReader {
 public:
  ParquetReader(const ParquetSet& set, std::shared_ptr<RowGroupCache> cache, std::shared_ptr<MemoryBudget> budget)
      : set_(set), cache_(std::move(cache)), values_(std::move(budget)) {}

  Example read_sample(std::uint64_t index, StageTimes& times) override;
  void expect_neighbours(const Upcoming& upcoming) override { upcoming_ = upcoming; }
  std::string position() const override;
  std::size_t scratch_bytes() const override { return values_.capacity_bytes(); }

 private:
  RowGroup load(const Place& place, StageTimes& times);
  /// One of the row groups that will be asked for soon.
  void read_ahead(StageTimes& times);
  /// Those, of files afar, that are not here, and no thread reads.
  void announce_upcoming();
  /// False where the row group is here.
  bool announce_if_away(const Place& place);
  Example copy_row(const RowGroup& group);

  const ParquetSet& set_;
  const std::shared_ptr<RowGroupCache> cache_;
  ScratchBuffer values_;
  std::optional<Place> place_;
  Upcoming upcoming_;
  std::size_t open_file_ = 0;
  std::unique_ptr<ParquetFile> open_;  // The file that was read last.
};

void ParquetSet::read_footer(std::size_t number, const std::vector<std::string>& columns) {
  File& file = files_[number];
  FooterGrant grant;
  ArrowMemory memory(arrow_, grant);
  const ParquetFile opened(arrow_, open(number), memory);
  const std::vector<ListedColumn> all = opened.columns();
  file.columns = columns.empty() ? all_columns(all, file.name) : wanted_columns(all, columns, file.name);
  for (std::uint64_t group = 0; group < opened.row_groups(); ++group) {
    const std::uint64_t rows = opened.rows(group);
    if (rows > kMostRows - file.rows()) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: row group {} is said to have {} rows", file.name, group, rows));
    }
    file.ends.push_back(file.rows() + rows);
    std::uint64_t bytes = 0;
    std::uint64_t decoded_bytes = 0;
    for (const Column& column : file.columns) {
      const std::uint64_t encoded = opened.leaf_bytes(group, column.listed.leaf);
      bytes = sum(bytes, encoded);
      const std::uint64_t size = std::max<std::uint64_t>(1, value_bytes(*column.listed.type));
      const std::uint64_t values = size * std::min(opened.leaf_values(group, column.listed.leaf), kMostBytes / size);
      decoded_bytes = sum(decoded_bytes, std::max(encoded, values));
    }
    if (is_far_) file.ranges.push_back(ranges_of(opened, group, file.columns));
    file.bytes = sum(file.bytes, bytes);
    file.largest_group_bytes = std::max(file.largest_group_bytes, decoded_bytes);
  }
}

Place ParquetSet::place_of(std::uint64_t sample) const {
  const auto behind = std::ranges::upper_bound(files_, sample, {}, &File::first);
  Place place;
  place.file = static_cast<std::size_t>(behind - files_.begin()) - 1;
  const File& file = files_[place.file];
  place.row = sample - file.first;
  const auto end = std::ranges::upper_bound(file.ends, place.row);
  place.row_group = static_cast<std::uint64_t>(end - file.ends.begin());
  place.row_in_group = place.row - (place.row_group == 0 ? 0 : *(end - 1));
  return place;
}

std::string ParquetSet::advice_on_full_shuffle(std::uint64_t budget_bytes) const {
  double bytes = 0;
  for (const File& file : files_) bytes += static_cast<double>(file.bytes);
  if (2 * bytes <= static_cast<double>(budget_bytes) || largest_row_group_ == 1) return {};
  return fmt::format(
      "a full shuffle takes each sample from another row group, and the {:.1f} GB of the Parquet files' row groups do "
      "not "
      "fit into the half of the memory budget ({}) that keeps them, so most samples decode a row group of up to {} "
      "rows "
      "anew; shuffle in blocks, give the loader more memory, or write smaller row groups",
      bytes / 1e9, format_bytes(budget_bytes), largest_row_group_);
}

SampleBlocks ParquetSet::blocks() const {
  std::vector<std::uint64_t> ends;
  for (const File& file : files_) {
    for (const std::uint64_t end : file.ends) {
      if (file.first + end > (ends.empty() ? 0 : ends.back())) ends.push_back(file.first + end);
    }
  }
  return internal::blocks_of(std::move(ends), largest_row_group_bytes_);
}

std::unique_ptr<SampleReader> ParquetSet::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  auto cache = caches_.of(budget, [&] {
    return std::make_shared<RowGroupCache>(arrow_, budget, budget ? budget->total_bytes() / 2 : kUnbudgetedBytes);
  });
  return std::make_unique<ParquetReader>(*this, std::move(cache), std::move(budget));
}

void ParquetReader::read_ahead(StageTimes& times) {
  if (!upcoming_) return;
  for (const std::uint64_t sample : upcoming_()) {
    const Place place = set_.place_of(sample);
    if (set_.is_far_ && announce_if_away(place)) continue;
    if (cache_->read_ahead({place.file, place.row_group}, [&] { return load(place, times); })) return;
  }
}

void ParquetReader::announce_upcoming() {
  if (!set_.is_far_ || !upcoming_) return;
  for (const std::uint64_t sample : upcoming_()) announce_if_away(set_.place_of(sample));
}

bool ParquetReader::announce_if_away(const Place& place) {
  const std::vector<FileRange>& ranges = set_.files_[place.file].ranges[place.row_group];
  try {
    const auto file = set_.open(place.file);
    if (std::ranges::all_of(ranges, [&](const FileRange& range) { return file->is_here(range); })) return false;
    cache_->announce({place.file, place.row_group}, [&] { file->will_read(ranges); });
  } catch (const Error&) {  // Whoever asks for it gets the same.
  }
  return true;
}

RowGroup ParquetReader::load(const Place& place, StageTimes& times) {
  StageClock clock(times);
  const File& file = set_.files_[place.file];
  const std::uint64_t group = place.row_group;
  RowGroup loaded;
  std::chrono::nanoseconds source{0};
  std::uint64_t encoded_bytes = 0;
  try {
    if (!open_ || open_file_ != place.file) {
      open_.reset();
      open_ = std::make_unique<ParquetFile>(set_.arrow_, set_.open(place.file), cache_->memory());
      open_file_ = place.file;
    }
    source -= open_->source_time();
    if (group >= open_->row_groups() || open_->rows(group) != file.rows_of(group)) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{} has changed since its footer was read: row group {} had {} rows", file.name, group,
                              file.rows_of(group)));
    }
    if (set_.is_far_) open_->file().will_read(file.ranges[group]);
    announce_upcoming();
    for (const Column& column : file.columns) encoded_bytes += open_->leaf_bytes(group, column.listed.leaf);
    for (const Column& column : file.columns) loaded.columns.push_back(open_->read(group, column.listed));
    source += open_->source_time();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted) throw;
    throw Error(
        ErrorCode::kResourceExhausted,
        fmt::format("{}: row group {}, of {} rows, does not fit into the {} that decoded row groups may take, half "
                    "of the memory budget. Its values take {} as they are encoded; numbers need about 2.5 times, byte "
                    "strings 6 times their size in memory as the budget. Give the loader more, read fewer columns, or "
                    "write smaller row groups (pyarrow: row_group_size)",
                    file.name, group, file.rows_of(group), format_bytes(cache_->most_bytes()),
                    format_bytes(encoded_bytes)));
  }
  clock.finish(Stage::kDecode);
  times.spent.at(static_cast<std::size_t>(Stage::kSource)) += source;
  times.spent.at(static_cast<std::size_t>(Stage::kDecode)) -= source;
  return loaded;
}

Example ParquetReader::read_sample(std::uint64_t index, StageTimes& times) {
  place_ = set_.place_of(index);
  Example sample;
  StageTimes spent_loading;
  StageTimes spent;
  StageClock clock(spent);
  cache_->with(
      {place_->file, place_->row_group}, [&] { return load(*place_, spent_loading); },
      [&](const RowGroup& group) { sample = copy_row(group); }, [&] { read_ahead(spent_loading); });
  clock.finish(Stage::kDecode);  // Also what it waited for another thread that decoded the row group.
  spent.spent.at(static_cast<std::size_t>(Stage::kDecode)) -= spent_loading.total();
  times += spent_loading;
  times += spent;
  return sample;
}

Example ParquetReader::copy_row(const RowGroup& group) {
  const File& file = set_.files_[place_->file];
  std::vector<ArrowRow> rows;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < file.columns.size(); ++i) {
    std::uint64_t row = place_->row_in_group;
    auto part = group.columns[i].begin();
    for (; row >= static_cast<std::uint64_t>(part->array().length); ++part) {
      row -= static_cast<std::uint64_t>(part->array().length);
    }
    try {
      rows.emplace_back(part->array(), *file.columns[i].listed.type, row);
    } catch (Error& error) {
      error.add_context(fmt::format("{}, column '{}'", position(), file.columns[i].listed.path));
      throw;
    }
    bytes += (rows.back().bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const auto values = values_.take(bytes);
  Example sample;
  std::size_t used = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Feature feature = rows[i].copy_to(values.subspan(used, rows[i].bytes()));
    for (const std::string& name : file.columns[i].names) sample.add(name, feature);
    used += (rows[i].bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return sample;
}

std::string ParquetReader::position() const {
  if (!place_) return "no row";
  return fmt::format("{}, row {} (row {} of row group {})", set_.files_[place_->file].name, place_->row,
                     place_->row_in_group, place_->row_group);
}

}  // namespace

bool is_parquet(std::span<const std::byte> first_bytes) {
  return as_text(first_bytes).starts_with("PAR1") || as_text(first_bytes).starts_with("PARE");
}

std::string pyarrow_folder_from_environment() { return environment_variable("GYRE_PYARROW").value_or(""); }

std::shared_ptr<const SampleSet> open_parquet(std::vector<std::string> names, FileOpener open,
                                              const ParquetOptions& options) {
  return std::make_shared<ParquetSet>(std::move(names), std::move(open), options);
}

}  // namespace gyre::data
