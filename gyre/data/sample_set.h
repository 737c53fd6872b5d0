#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/formats/example.h"
#include "gyre/data/scratch_buffer.h"
#include "gyre/data/stages.h"

namespace gyre::data {

/// Reads samples of a set, one at a time. Not thread-safe: one per thread.
class SampleReader {
 public:
  virtual ~SampleReader() = default;

  /// The features of sample `index`, as views that stay until the next call. Adds the time to `times`. Errors name the
  /// file, the sample and its place in it: kCorruptData; kNotFound and kIo; kResourceExhausted beyond the budget.
  virtual Example read_sample(std::uint64_t index, StageTimes& times) = 0;

  /// Samples that will be asked for soon, of this reader or others of its set, the nearest first.
  using Upcoming = std::function<std::vector<std::uint64_t>()>;
  /// What is read from here on are neighbours, those of a few blocks at a time (SampleSet::blocks()); without this call
  /// it may be any samples. A reader that would wait for another one may read what is `upcoming` meanwhile.
  virtual void expect_neighbours(const Upcoming& /*upcoming*/) {}

  /// The last sample that was asked for, for messages: file, number in it, place.
  virtual std::string position() const = 0;
  /// Memory that it takes for itself.
  virtual std::size_t scratch_bytes() const = 0;
  /// Memory of the last sample's file that it shares with other readers of the budget. If there is room for only one
  /// such file, they take turns.
  virtual std::size_t shared_bytes() const { return 0; }
  /// Gives up what is shared, for which others may wait: nothing will be read for a while.
  virtual void let_go() {}
};

/// Of parts of files that can be read at any place: long enough for storage, and short enough to be mixed.
constexpr std::uint64_t kBlockBytes = std::uint64_t{16} << 20;

/// Parts of a set that are best read together.
struct SampleBlocks {
  /// Behind the last sample of each block, ascending; null: every sample is a block of its own.
  std::shared_ptr<const std::vector<std::uint64_t>> ends{};
  std::uint64_t largest_bytes = 0;  ///< Memory that the largest of them takes while its samples are read.
};

/// Samples with named features, numbered from 0, whatever files they lie in. Immutable; thread-safe.
class SampleSet {
 public:
  virtual ~SampleSet() = default;

  virtual std::uint64_t count() const = 0;
  /// Files, or parts of them: those that are read as a whole, because they are compressed; of others about
  /// kBlockBytes. The same for the same files, whatever the number of threads.
  virtual SampleBlocks blocks() const = 0;
  /// The names of the classes, by label, where the files say them.
  virtual std::vector<std::string> classes() const { return {}; }
  /// The label of each sample where its file's name says it; else empty.
  virtual std::span<const std::uint32_t> labels() const { return {}; }
  /// The names of all samples where a folder lists them, for comparing sets; else empty.
  virtual std::string_view listing() const { return {}; }
  /// Of what says most about the samples' contents in the fewest bytes, where the format has such: labels, and the
  /// records' own checksums. For comparing sets that are too large to be read. Reads these from the files; 0 where it
  /// has none. Errors are those of reading.
  virtual std::uint64_t contents_checksum() const { return 0; }
  /// What a person calls a sample: the name of its file, or of the file that holds it, and its number there.
  virtual std::string name_of(std::uint64_t sample) const = 0;
  /// What a folder holds beside the samples, counted, in words: "1 hidden file"; else empty.
  virtual std::string left_out() const { return {}; }
  /// What a person should know who reads the samples in any order within a budget of so much: empty where that costs
  /// nothing.
  virtual std::string advice_on_full_shuffle(std::uint64_t /*budget_bytes*/) const { return {}; }
  /// These samples will be read soon, in this order: their files begin to fetch them. For files that are far away
  /// (Folders::are_far()). Errors come when the samples are read.
  virtual void will_read(std::span<const std::uint64_t> /*samples*/) const {}
  /// Refers to the set, which must outlive it. What it keeps in memory counts in `budget`, where there is one.
  virtual std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const = 0;
};

}  // namespace gyre::data
