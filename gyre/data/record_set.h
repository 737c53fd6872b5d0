#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/data/formats/inflate.h"
#include "gyre/data/formats/tfrecord.h"
#include "gyre/data/internal/contents_cache.h"
#include "gyre/data/internal/one_per_budget.h"
#include "gyre/data/internal/open_files.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"
#include "gyre/data/scratch_buffer.h"
#include "gyre/data/stages.h"

namespace gyre::data {

struct RecordSetOptions {
  /// 0: not known. Then every file is opened once to count its records, and decompressed where it is compressed.
  std::uint64_t records_per_file = 0;
  int threads = 1;  ///< That count.
  /// Of one file's contents in memory, where it has to be read as a whole because it is compressed.
  std::uint64_t most_contents_bytes = std::uint64_t{64} << 30;
};

/// The records of some TFRecord files, numbered from 0 through all files in the order in which these are given.
/// Immutable; thread-safe.
class RecordSet : public SampleSet {
 public:
  /// Errors name the file: those of `open`, and of formats/tfrecord.h. Error(kInvalidArgument) without files.
  RecordSet(std::vector<std::string> names, FileOpener open, const RecordSetOptions& options);

  std::uint64_t count() const override { return files_.back().first + files_.back().count; }
  std::size_t file_count() const { return files_.size(); }
  SampleBlocks blocks() const override;
  /// Of the records' checksums, where it is known where these lie.
  std::uint64_t contents_checksum() const override;
  std::string name_of(std::uint64_t sample) const override;
  std::string advice_on_full_shuffle(std::uint64_t budget_bytes) const override;
  void will_read(std::span<const std::uint64_t> samples) const override;
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

 private:
  friend class RecordReader;

  struct File {
    std::string name;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::vector<RecordPlace> places{};  ///< Empty where the file is compressed, or was not opened.
    std::uint64_t contents_bytes = 0;   ///< Decompressed; 0 where it was not opened.

    bool is_compressed() const { return places.empty() && contents_bytes > 0; }
  };
  /// Of a set whose files were not opened, the first one; files are alike.
  struct Sample {
    bool compressed = false;
    std::uint64_t contents_bytes = 0;  ///< A guess where it is compressed.
  };

  void count_records(int threads);
  void count_records_of(std::size_t number);
  /// The index of the file that holds `record`.
  std::size_t file_of(std::uint64_t record) const;

  Sample sample() const;
  std::uint64_t contents_checksum_of(std::size_t number) const;

  std::vector<File> files_;
  bool opened_;
  std::uint64_t most_contents_bytes_;
  mutable internal::OpenFiles open_files_;
  mutable internal::OnePerBudget<internal::ContentsCache> caches_;
};

/// Reads records of a set, one at a time. What is compressed, and small files whose neighbours are read too, is read as
/// a whole and shared with the other readers of the same budget, within half of it; the records of other files are read
/// one by one, once it is known where they lie. Not thread-safe: one per thread.
class RecordReader : public SampleReader {
 public:
  /// `set` must outlive it.
  RecordReader(const RecordSet& set, const std::shared_ptr<MemoryBudget>& budget);

  /// The payload of record `index`, checked; it stays until the next call. Adds the time to `times`. Errors name the
  /// file, the record and its offset: kCorruptData; kNotFound and kIo; kResourceExhausted beyond the budget.
  std::span<const std::byte> read(std::uint64_t index, StageTimes& times);

  /// The record as a tf.train.Example.
  Example read_sample(std::uint64_t index, StageTimes& times) override;
  std::string position() const override;
  void expect_neighbours(const Upcoming& upcoming) override { upcoming_ = upcoming; }
  std::size_t scratch_bytes() const override;
  std::size_t shared_bytes() const override;
  void let_go() override;

 private:
  using Contents = internal::FileContents;

  /// Whether what is found out about the file is for other records and readers too.
  bool is_shared(const RecordSet::File& file) const;
  /// Makes held_ what `file` holds, read as a whole where it is compressed, or small.
  void hold(std::size_t file, StageClock& clock);
  void load(std::size_t file, Contents& contents, StageClock& clock);
  /// The file, whose records lie where they did when they were counted.
  std::shared_ptr<const ReadableFile> open(std::size_t file) const;
  /// One of the files that will be asked for soon, if it is here. Those that are not are announced: a server that is
  /// silent must not hold up the record that this reader is to read.
  void read_ahead(StageClock& clock);
  /// False where the file is here.
  bool announce_if_away(std::size_t file);
  const std::vector<RecordPlace>& places() const;

  const RecordSet& set_;
  const std::shared_ptr<internal::ContentsCache> cache_;
  Inflater inflater_;
  ScratchBuffer stored_;
  std::shared_ptr<Contents> own_;  ///< Of a file that is not shared.
  Upcoming upcoming_;
  std::optional<std::size_t> file_;       ///< That was asked for last.
  std::uint64_t record_ = 0;              ///< Within it.
  std::shared_ptr<const Contents> held_;  ///< Of it; null where its records are read one by one, from known places.
};

}  // namespace gyre::data
