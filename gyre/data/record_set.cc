#include "gyre/data/record_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/data/internal/parallel.h"

namespace gyre::data {
namespace {

constexpr std::size_t kSniffBytes = 12;
/// A file up to here is read at once even where it is not compressed: one call instead of one for each record and
/// length.
constexpr std::uint64_t kSmallFileBytes = std::uint64_t{1} << 20;

Compression compression_of(const ReadableFile& file) {
  std::array<std::byte, kSniffBytes> first{};
  const auto bytes = std::span(first).first(std::min<std::uint64_t>(first.size(), file.size_bytes()));
  file.read_at(0, bytes);
  return tfrecord_compression(bytes);
}

std::span<const std::byte> read_whole(const ReadableFile& file, ScratchBuffer& buffer) {
  const auto stored = buffer.take(static_cast<std::size_t>(file.size_bytes()));
  file.read_at(0, stored);
  return stored;
}

}  // namespace

RecordSet::RecordSet(std::vector<std::string> names, FileOpener open, const RecordSetOptions& options)
    : open_(std::move(open)), most_contents_bytes_(options.most_contents_bytes) {
  if (names.empty()) throw Error(ErrorCode::kInvalidArgument, "a set of records needs at least one file");
  files_.reserve(names.size());
  for (std::string& name : names) files_.push_back({.name = std::move(name), .count = options.records_per_file});
  if (options.records_per_file == 0) count_records(options.threads);
  std::uint64_t first = 0;
  for (File& file : files_) {
    file.first = first;
    first += file.count;
  }
  if (first == 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} file{} ({}, …) hold no record", files_.size(),
                                                         files_.size() == 1 ? "" : "s", files_.front().name));
  }
}

void RecordSet::count_records(int threads) {
  internal::for_each_index(files_.size(), threads, "counting records",
                           [this](std::size_t i) { count_records_of(files_[i]); });
}

void RecordSet::count_records_of(File& file) const {
  const auto opened = open_(file.name);
  const Compression compression = compression_of(*opened);
  if (compression == Compression::kNone) {
    file.places = index_tfrecords(*opened);
    file.count = file.places.size();
    return;
  }
  file.count = count_tfrecords(*opened, compression);
}

std::uint64_t RecordSet::largest_file() const { return std::ranges::max_element(files_, {}, &File::count)->count; }

std::size_t RecordSet::file_of(std::uint64_t record) const {
  const auto behind = std::ranges::upper_bound(files_, record, {}, &File::first);
  return static_cast<std::size_t>(behind - files_.begin()) - 1;
}

std::unique_ptr<SampleReader> RecordSet::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  return std::make_unique<RecordReader>(*this, budget);
}

RecordReader::RecordReader(const RecordSet& set, const std::shared_ptr<MemoryBudget>& budget)
    : set_(set), stored_(budget), contents_(budget) {}

std::span<const std::byte> RecordReader::read(std::uint64_t index, StageTimes& times) {
  StageClock clock(times);
  const std::size_t file = set_.file_of(index);
  if (held_ != file) hold(file, clock);
  const RecordSet::File& of = set_.files_[file];
  const std::uint64_t record = record_ = index - of.first;
  const auto& places = of.places.empty() ? held_places_ : of.places;
  if (places.size() != of.count) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} holds {} record{}, where {} was expected of each file",
                                                     of.name, places.size(), places.size() == 1 ? "" : "s", of.count));
  }
  const RecordPlace& place = places[static_cast<std::size_t>(record)];
  if (held_contents_) {
    const auto payload = checked_payload(*held_contents_, place, of.name, record);
    clock.finish(Stage::kDecode);
    return payload;
  }
  const auto payload = read_tfrecord(*open_, place, record, stored_);
  clock.finish(Stage::kSource);
  return payload;
}

Example RecordReader::read_sample(std::uint64_t index, StageTimes& times) {
  const auto payload = read(index, times);
  StageClock clock(times);
  try {
    Example example(payload);
    clock.finish(Stage::kDecode);
    return example;
  } catch (Error& error) {
    error.add_context(position());
    throw;
  }
}

std::string RecordReader::position() const {
  if (!held_) return "no record";
  const RecordSet::File& of = set_.files_[*held_];
  const RecordPlace& place = (of.places.empty() ? held_places_ : of.places)[static_cast<std::size_t>(record_)];
  return fmt::format("{}, record {}, whose contents begin at byte {}", of.name, record_, place.offset_bytes);
}

void RecordReader::hold(std::size_t file, StageClock& clock) {
  const RecordSet::File& of = set_.files_[file];
  held_.reset();
  held_contents_.reset();
  held_places_.clear();
  open_ = set_.open_(of.name);
  if (!of.places.empty() && open_->size_bytes() <= of.places.back().offset_bytes + of.places.back().size_bytes) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} has become shorter since its records were counted: it ends at byte {}", of.name,
                            open_->size_bytes()));
  }
  const Compression compression = of.places.empty() ? compression_of(*open_) : Compression::kNone;
  if (compression != Compression::kNone || open_->size_bytes() <= kSmallFileBytes) {
    const auto stored = read_whole(*open_, stored_);
    clock.finish(Stage::kSource);
    const auto contents = inflater_.inflate(compression, stored, set_.most_contents_bytes_, of.name, contents_);
    clock.finish(Stage::kInflate);
    held_contents_ = contents;
    if (of.places.empty()) held_places_ = index_tfrecords(contents, of.name);
    open_.reset();
  } else if (of.places.empty()) {
    held_places_ = index_tfrecords(*open_);
  }
  held_ = file;
}

}  // namespace gyre::data
