#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gyre/data/formats/inflate.h"
#include "gyre/data/formats/tfrecord.h"
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
  std::uint64_t largest_file() const override;
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

 private:
  friend class RecordReader;

  struct File {
    std::string name;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::vector<RecordPlace> places{};  ///< Empty where the file is compressed, or was not opened.
  };

  void count_records(int threads);
  void count_records_of(File& file) const;
  /// The index of the file that holds `record`.
  std::size_t file_of(std::uint64_t record) const;

  std::vector<File> files_;
  FileOpener open_;
  std::uint64_t most_contents_bytes_;
};

/// Reads records of a set, one at a time. Keeps the file that it has read last, so that its other records cost little.
/// Not thread-safe: one per thread.
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
  std::size_t scratch_bytes() const override { return stored_.capacity_bytes() + contents_.capacity_bytes(); }

 private:
  /// Opens `file`; reads it as a whole where it is compressed, or small.
  void hold(std::size_t file, StageClock& clock);

  const RecordSet& set_;
  Inflater inflater_;
  ScratchBuffer stored_;
  ScratchBuffer contents_;
  std::optional<std::size_t> held_;
  std::uint64_t record_ = 0;                                 ///< Within the held file.
  std::unique_ptr<const ReadableFile> open_;                 ///< Of a file that is read record by record.
  std::optional<std::span<const std::byte>> held_contents_;  ///< Of a file that was read as a whole.
  std::vector<RecordPlace> held_places_;
};

}  // namespace gyre::data
