#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gyre/data/block_shuffle.h"
#include "gyre/data/shuffle.h"

namespace gyre::data {

/// What happens when the samples do not fill the last global batch of an epoch.
enum class Remainder {
  kDrop,  ///< They are left out of this epoch (a shuffle leaves out others of the next).
  kPad,   ///< The batch is filled up with samples from the front of the order, which are marked and must not count.
};

/// Who sees which samples.
enum class Sharing {
  kSharded,       ///< Each sample once per epoch, on one rank.
  kEveryRankAll,  ///< Every rank runs through all samples, in an order of its own (what the first article's script
                  ///< does).
};

/// In which order an epoch runs through the samples.
enum class Shuffling {
  kNone,    ///< As they are numbered.
  kFull,    ///< Any sample at any place.
  kBlocks,  ///< Blocks of neighbours in random order, a few of them open at a time, whose samples are mixed
            ///< (BlockShuffle).
};

struct SamplerOptions {
  std::uint64_t count = 0;  ///< Samples in the data set.
  std::uint64_t seed = 0;   ///< Of the shuffle.
  Shuffling shuffling = Shuffling::kFull;
  /// Of kBlocks, and where kNone reads on (BlockShuffleOptions::block_ends). A Loader asks its set where this is null.
  std::shared_ptr<const std::vector<std::uint64_t>> block_ends{};
  std::uint64_t streams = 1;         ///< Of kBlocks; the same on any number of ranks, see StreamShare.
  std::uint64_t open_blocks = 0;     ///< Of kBlocks; 0: as default_open_blocks() says of the Loader's set.
  int ranks = 1;                     ///< Ranks that share the work.
  std::uint64_t batch_per_rank = 1;  ///< Samples per rank and step.
  Remainder remainder = Remainder::kPad;
  Sharing sharing = Sharing::kSharded;
};

/// One rank's samples of one step.
struct RankBatch {
  std::vector<std::uint64_t> samples;  ///< batch_per_rank indices into the data set.
  std::uint64_t present = 0;           ///< The first `present` belong to the step; the others are padding.
  std::uint64_t counted = 0;           ///< The first `counted` count: all present ones that are not damaged.
  std::uint64_t first_position = 0;    ///< Of samples[0] in the ranks' batches one after the other.
  /// `counted` of all ranks together. No rank knows which samples the others have replaced: with several ranks those
  /// are included.
  std::uint64_t counted_globally = 0;
};

/// Which positions of a step are one rank's, where the streams of kBlocks can be divided among the ranks: one number
/// divides the other, and the global batch holds equally many positions of each stream. Then every rank reads the same
/// streams in all steps of a run, contiguous ones, and several ranks share a stream where there are more ranks. Else,
/// and with one stream, ranks take contiguous parts of the global batch. What a step holds in all is the same either
/// way.
class StreamShare {
 public:
  StreamShare(const SamplerOptions& options, int rank);

  bool is_divided() const { return divided_; }
  /// The rank's streams: all where they are not divided.
  std::uint64_t first() const { return first_; }
  std::uint64_t count() const { return count_; }
  /// The place in the step of the rank's position `index` (below batch_per_rank), ascending in `index`. `begin`: the
  /// step's first position.
  std::uint64_t place(std::uint64_t begin, std::uint64_t index) const;

 private:
  std::uint64_t streams_;
  std::uint64_t offset_;  ///< Where they are not divided: of the rank's part.
  bool divided_ = false;
  std::uint64_t first_ = 0;
  std::uint64_t count_;
  std::uint64_t sharers_ = 1;  ///< Ranks that share each of the streams …
  std::uint64_t sharer_ = 0;   ///< … and which of them this one is.
};

/// The order of one epoch as one rank sees it, computed when it is asked for. Of kBlocks it keeps two numbers for each
/// block, else nothing that grows with the set. A value; thread-safe.
class EpochOrder {
 public:
  /// `first_position`: where in the order the first step begins, up to `count`: what a run of any number of ranks and
  /// any batch size has read before is left out. Steps count from there.
  EpochOrder(const SamplerOptions& options, std::uint64_t epoch, int rank, std::uint64_t first_position = 0);

  std::uint64_t steps() const { return steps_; }
  /// `rank` is the one given above, or any other when samples are sharded (then the order is everybody's).
  RankBatch batch(std::uint64_t step, int rank) const;

  /// Which position of the order batch(step, rank).samples[index] has: less than SamplerOptions::count.
  std::uint64_t position_of(std::uint64_t step, int rank, std::uint64_t index) const;
  std::uint64_t sample_at(std::uint64_t position) const;
  /// A sample of each block that the rank reads from around `position` on, the nearest first, `most` of them: those of
  /// kFull are read in any order, and there are none.
  std::vector<std::uint64_t> upcoming_blocks(std::uint64_t position, std::size_t most) const;

 private:
  StreamShare share_of_rank(int rank) const;

  SamplerOptions options_;
  std::uint64_t first_position_;
  std::uint64_t steps_;
  std::optional<Shuffle> full_;
  std::optional<BlockShuffle> blocks_;
  StreamShare share_;
};

/// How many blocks, of which the largest takes so much memory while it is open, each of the streams of kBlocks mixes:
/// as many as 256 MiB, or a quarter of the budget if that is less, hold for all streams together, but from 1 to 16.
std::uint64_t default_open_blocks(std::uint64_t largest_block_bytes, std::uint64_t streams, std::uint64_t budget_bytes);

/// Samples of the order that one step takes: those of all ranks, or one rank's where each runs through all.
std::uint64_t positions_per_step(const SamplerOptions& options);

/// Steps of an epoch: the same on every rank. At least 1: with kDrop and fewer samples than a global batch holds it is
/// Error(kInvalidArgument), because such a run would train nothing.
std::uint64_t steps_per_epoch(const SamplerOptions& options);

/// The global order of an epoch, for tests and small sets: a permutation of 0..count-1 keyed by (seed, epoch), whatever
/// the number of ranks. Global batch b is its positions [b*B, (b+1)*B) with B = ranks * batch_per_rank, and rank r
/// takes the r-th part of it. Golden values stand in sampler_test.cc: an order once published never changes.
std::vector<std::uint64_t> epoch_permutation(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch);

/// Rank `rank`'s contiguous share [first, last) of `count` things: sizes differ by one at most, none is left out.
struct Share {
  std::uint64_t first;
  std::uint64_t last;
};
Share share_of(std::uint64_t count, int rank, int ranks);

}  // namespace gyre::data
