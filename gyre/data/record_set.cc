#include "gyre/data/record_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/internal/block_ends.h"
#include "gyre/data/internal/parallel.h"

namespace gyre::data {
namespace {

using RecordChecksum = std::array<std::byte, 4>;  // As it stands behind a payload.

constexpr std::size_t kSniffBytes = 12;
/// A file up to here is read at once even where it is not compressed, if its records are read together: one call
/// instead of one for each record and length.
constexpr std::uint64_t kSmallFileBytes = std::uint64_t{1} << 20;
/// What is not known is guessed: numbers and text become so many times smaller.
constexpr std::uint64_t kUsualRatio = 6;
/// Of contents, where there is no budget.
constexpr std::uint64_t kUnbudgetedBytes = std::uint64_t{256} << 20;

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
    : opened_(options.records_per_file == 0),
      most_contents_bytes_(options.most_contents_bytes),
      open_files_(std::move(open), names.size()) {
  if (names.empty()) throw Error(ErrorCode::kInvalidArgument, "a set of records needs at least one file");
  files_.reserve(names.size());
  for (std::string& name : names) files_.push_back({.name = std::move(name), .count = options.records_per_file});
  if (opened_) count_records(options.threads);
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
  internal::for_each_index(files_.size(), threads, "counting records", [this](std::size_t i) { count_records_of(i); });
}

void RecordSet::count_records_of(std::size_t number) {
  File& file = files_[number];
  const auto opened = open_files_.open_once(number, file.name);
  const Compression compression = compression_of(*opened);
  if (compression == Compression::kNone) {
    file.places = index_tfrecords(*opened);
    file.count = file.places.size();
    file.contents_bytes = opened->size_bytes();
    return;
  }
  const TfRecordCount counted = count_tfrecords(*opened, compression);
  file.count = counted.records;
  file.contents_bytes = counted.contents_bytes;
}

RecordSet::Sample RecordSet::sample() const {
  const auto file = open_files_.get(0, files_.front().name);
  const bool compressed = compression_of(*file) != Compression::kNone;
  return {compressed, file->size_bytes() * (compressed ? kUsualRatio : 1)};
}

SampleBlocks RecordSet::blocks() const {
  std::vector<std::uint64_t> ends;
  std::uint64_t largest_bytes = 0;
  if (!opened_ && files_.front().count == 1) return {};
  const Sample sample = opened_ ? Sample{} : this->sample();
  for (const File& file : files_) {
    const bool compressed = opened_ ? file.is_compressed() : sample.compressed;
    const std::uint64_t bytes = opened_ ? file.contents_bytes : sample.contents_bytes;
    if (file.count > 0 && (compressed || bytes <= kSmallFileBytes)) {
      ends.push_back(file.first + file.count);
      largest_bytes = std::max(largest_bytes, bytes);
    } else {
      internal::append_blocks(ends, file.count, [&](std::uint64_t record) {
        if (!opened_) return bytes / file.count * (record + 1);
        const RecordPlace& place = file.places[static_cast<std::size_t>(record)];
        return place.offset_bytes + place.size_bytes;
      });
    }
  }
  return internal::blocks_of(std::move(ends), largest_bytes);
}

std::string RecordSet::advice_on_full_shuffle(std::uint64_t budget_bytes) const {
  std::uint64_t bytes = 0;
  std::uint64_t most_records = 0;
  if (!opened_ && files_.front().count == 1) return {};
  const Sample sample = opened_ ? Sample{} : this->sample();
  for (const File& file : files_) {
    if (file.count <= 1 || !(opened_ ? file.is_compressed() : sample.compressed)) continue;
    bytes += opened_ ? file.contents_bytes : sample.contents_bytes;
    most_records = std::max(most_records, file.count);
  }
  if (bytes <= budget_bytes / 2) return {};
  return fmt::format(
      "a full shuffle takes each sample from another file, and the contents of the compressed TFRecord files, {} in "
      "all, do not fit into the half of the memory budget ({}) that keeps them, so most samples decompress a file of "
      "up to {} records anew; shuffle in blocks, give the loader more memory, or write one record into each file",
      format_bytes(bytes), format_bytes(budget_bytes), most_records);
}

std::uint64_t RecordSet::contents_checksum_of(std::size_t number) const {
  const File& file = files_[number];
  if (file.places.empty()) return 0;
  const auto opened = open_files_.open_once(number, file.name);
  std::vector<RecordChecksum> checksums(file.places.size());
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    opened->read_at(file.places[i].end_bytes() - sizeof(RecordChecksum), checksums[i]);
  }
  return xxh3_64(std::as_bytes(std::span(checksums)));
}

std::uint64_t RecordSet::contents_checksum() const {
  constexpr int kThreads = 8;  // They wait for the disk.
  std::vector<std::uint64_t> checksums(files_.size());
  internal::for_each_index(files_.size(), kThreads, "comparing records",
                           [&](std::size_t i) { checksums[i] = contents_checksum_of(i); });
  return xxh3_64(std::as_bytes(std::span(checksums)));
}

std::string RecordSet::name_of(std::uint64_t sample) const {
  const File& file = files_[file_of(sample)];
  return fmt::format("{}:{}", file.name, sample - file.first);
}

std::size_t RecordSet::file_of(std::uint64_t record) const {
  const auto behind = std::ranges::upper_bound(files_, record, {}, &File::first);
  return static_cast<std::size_t>(behind - files_.begin()) - 1;
}

void RecordSet::will_read(std::span<const std::uint64_t> samples) const {
  for (const std::uint64_t sample : samples) {
    const std::size_t number = file_of(sample);
    const File& file = files_[number];
    // A file that is read as a whole for many samples is kept, and not read for each of them.
    if (file.places.empty() && file.count > 1) continue;
    const auto opened = open_files_.get(number, file.name);
    FileRange range{.size_bytes = opened->size_bytes()};
    if (!file.places.empty()) {
      const RecordPlace& place = file.places[static_cast<std::size_t>(sample - file.first)];
      range = {.offset_bytes = place.offset_bytes, .size_bytes = place.end_bytes() - place.offset_bytes};
    }
    opened->will_read({&range, 1});
  }
}

std::unique_ptr<SampleReader> RecordSet::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  return std::make_unique<RecordReader>(*this, budget);
}

RecordReader::RecordReader(const RecordSet& set, const std::shared_ptr<MemoryBudget>& budget)
    : set_(set),
      cache_(set.caches_.of(budget,
                            [&] {
                              const std::uint64_t most = budget ? budget->total_bytes() / 2 : kUnbudgetedBytes;
                              return std::make_shared<internal::ContentsCache>(budget, most);
                            })),
      stored_(budget),
      own_(std::make_shared<Contents>(budget)) {}

std::span<const std::byte> RecordReader::read(std::uint64_t index, StageTimes& times) {
  StageClock clock(times);
  const std::size_t file = set_.file_of(index);
  const RecordSet::File& of = set_.files_[file];
  record_ = index - of.first;
  if (file_ != file) hold(file, clock);
  if (places().size() != of.count) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} holds {} record{}, where {} was expected of each file", of.name, places().size(),
                            places().size() == 1 ? "" : "s", of.count));
  }
  const RecordPlace& place = places()[static_cast<std::size_t>(record_)];
  if (held_ && held_->bytes) {
    const auto payload = checked_payload(*held_->bytes, place, of.name, record_);
    clock.finish(Stage::kDecode);
    return payload;
  }
  const auto payload = read_tfrecord(*open(file), place, record_, stored_);
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

std::size_t RecordReader::scratch_bytes() const { return stored_.capacity_bytes() + own_->size_bytes(); }

std::size_t RecordReader::shared_bytes() const { return held_ && held_ != own_ ? held_->size_bytes() : 0; }

void RecordReader::let_go() {
  if (!held_ || held_ == own_) return;
  file_.reset();
  held_.reset();
}

const std::vector<RecordPlace>& RecordReader::places() const {
  return held_ && !held_->places().empty() ? held_->places() : set_.files_[*file_].places;
}

std::string RecordReader::position() const {
  if (!file_ || record_ >= places().size()) return "no record";
  return fmt::format("{}, record {}, whose contents begin at byte {}", set_.files_[*file_].name, record_,
                     places()[static_cast<std::size_t>(record_)].offset_bytes);
}

bool RecordReader::is_shared(const RecordSet::File& file) const { return file.count > 1; }

void RecordReader::hold(std::size_t file, StageClock& clock) {
  const RecordSet::File& of = set_.files_[file];
  file_.reset();
  held_.reset();  // Whose memory the next one may need.
  const bool one_by_one = !of.places.empty() && (!upcoming_ || of.contents_bytes > kSmallFileBytes);
  if (!one_by_one && is_shared(of)) {
    held_ = cache_->get(file, [&](Contents& contents) { load(file, contents, clock); }, [&] { read_ahead(clock); });
    clock.finish(Stage::kInflate);  // Also what it waited for another thread.
  } else if (!one_by_one) {
    own_->forget();
    load(file, *own_, clock);
    held_ = own_;
  }
  file_ = file;
}

std::shared_ptr<const ReadableFile> RecordReader::open(std::size_t file) const {
  const RecordSet::File& of = set_.files_[file];
  auto opened = set_.open_files_.get(file, of.name);
  if (!of.places.empty() && opened->size_bytes() < of.places.back().end_bytes()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} has become shorter since its records were counted: it ends at byte {}", of.name,
                            opened->size_bytes()));
  }
  return opened;
}

void RecordReader::load(std::size_t file, Contents& contents, StageClock& clock) {
  const RecordSet::File& of = set_.files_[file];
  const auto opened = open(file);
  const Compression compression = of.places.empty() ? compression_of(*opened) : Compression::kNone;
  const bool small = opened->size_bytes() <= kSmallFileBytes && (upcoming_ || of.count == 1);
  if (compression == Compression::kNone && !small) {
    contents.set_places(index_tfrecords(*opened));
    clock.finish(Stage::kSource);
    return;
  }
  if (compression == Compression::kNone) {
    contents.bytes = read_whole(*opened, contents.memory);
    clock.finish(Stage::kSource);
  } else {
    const auto stored = read_whole(*opened, stored_);
    clock.finish(Stage::kSource);
    contents.bytes = inflater_.inflate(compression, stored, set_.most_contents_bytes_, of.name, contents.memory);
    clock.finish(Stage::kInflate);
  }
  if (of.places.empty()) contents.set_places(index_tfrecords(*contents.bytes, of.name));
}

void RecordReader::read_ahead(StageClock& clock) {
  if (!upcoming_) return;
  for (const std::uint64_t sample : upcoming_()) {
    const std::size_t file = set_.file_of(sample);
    const RecordSet::File& of = set_.files_[file];
    if (!is_shared(of) || (of.contents_bytes > kSmallFileBytes && !of.places.empty())) continue;
    if (cache_->knows(file)) continue;
    if (announce_if_away(file)) continue;
    if (cache_->read_ahead(file, [&](Contents& contents) { load(file, contents, clock); })) return;
  }
}

bool RecordReader::announce_if_away(std::size_t file) {
  try {
    const auto opened = open(file);
    const FileRange whole{.size_bytes = opened->size_bytes()};
    if (opened->is_here(whole)) return false;
    cache_->announce(file, [&] { opened->will_read({&whole, 1}); });
  } catch (const Error&) {  // Whoever asks for it gets the same.
  }
  return true;
}

}  // namespace gyre::data
