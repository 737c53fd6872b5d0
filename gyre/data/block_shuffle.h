#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gyre/data/shuffle.h"

namespace gyre::data {

/// How blocks of neighbours are shuffled.
struct BlockShuffleOptions {
  std::uint64_t count = 0;  ///< Samples.
  /// Behind the last sample of each block: files, or parts of them, that are best read together. Ascending; the last
  /// one is `count`. Null: every sample is a block of its own.
  std::shared_ptr<const std::vector<std::uint64_t>> block_ends{};
  std::uint64_t streams = 1;      ///< At least 1.
  std::uint64_t open_blocks = 1;  ///< Of each stream at a time; 1 to kMostOpenBlocks.
};

constexpr std::uint64_t kMostOpenBlocks = 64;
constexpr std::uint64_t kMostStreams = 1 << 16;

/// A permutation of 0..count-1 that reads blocks from one end to the other, as few at a time as `open_blocks` of each
/// stream, and mixes their samples. The blocks, in random order, each with its samples in random order, form a line.
/// The line is cut into `streams` parts of equal length, and each of them into `open_blocks` lanes; lengths differ by
/// one sample at most. Position p belongs to stream p % streams: whoever takes every streams-th position reads one part
/// alone. A stream draws in rounds: one sample from each of its lanes, in an order that is random in each round. Every
/// second lane is read backwards: a block that lies in two lanes is then read by both at the same time.
///
/// Depends on the options and the key alone. A position takes O(log(blocks) + open_blocks), and all together two
/// numbers for each block, none where every sample is one. A value; thread-safe.
class BlockShuffle {
 public:
  BlockShuffle(BlockShuffleOptions options, const RandomKey& key);

  /// The order of the lanes in a round, for callers that ask for one position after the other.
  struct Round {
    std::uint64_t stream = 0;
    std::uint64_t number = 0;
    std::size_t lanes = 0;  ///< 0: none is known yet.
    std::array<std::uint8_t, kMostOpenBlocks> order{};
  };

  /// `round` is that of the last position, and then of this one.
  std::uint64_t at(std::uint64_t position, Round& round) const;
  std::uint64_t at(std::uint64_t position) const;

  /// A sample of each block that is read from around `position` on, those that are needed first at the front: the
  /// blocks that are open, and those that each lane opens next. At most `most`, of `streams` streams from `first` on.
  std::vector<std::uint64_t> upcoming(std::uint64_t position, std::size_t most, std::uint64_t first,
                                      std::uint64_t streams) const;

 private:
  /// The contiguous part `index` of `parts` of a length: sizes differ by one at most, the first ones are larger.
  struct Part {
    std::uint64_t begin;
    std::uint64_t size;
  };
  static Part part_of(std::uint64_t length, std::uint64_t parts, std::uint64_t index);

  /// In the line.
  Part lane(std::uint64_t stream, std::uint64_t lane) const;
  std::uint64_t place_in_line(std::uint64_t stream, std::uint64_t lane, std::uint64_t round) const;
  Round round_of(std::uint64_t stream, std::uint64_t number) const;
  std::uint64_t sample_at_place(std::uint64_t place) const;
  /// How many samples the lane draws from `place` on, that included, before it is in another block.
  std::uint64_t left_in_block(std::uint64_t place, bool backwards) const;

  BlockShuffleOptions options_;
  RandomKey key_;
  std::optional<Shuffle> samples_;  // The line, where every sample is a block.
  struct Line {
    std::vector<std::uint64_t> blocks;  // In their order.
    std::vector<std::uint64_t> ends;    // Of each, in the line.
  };
  std::shared_ptr<const Line> line_;
};

}  // namespace gyre::data
