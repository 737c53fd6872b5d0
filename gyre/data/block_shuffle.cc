#include "gyre/data/block_shuffle.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/random.h"

namespace gyre::data {
namespace {

// Purposes of derived().
constexpr std::uint32_t kOrderOfBlocks = 1;
constexpr std::uint32_t kWithinBlock = 2;
constexpr std::uint32_t kStream = 3;
constexpr std::uint32_t kRound = 4;

}  // namespace

BlockShuffle::BlockShuffle(BlockShuffleOptions options, const RandomKey& key)
    : options_(std::move(options)), key_(key) {
  GYRE_CHECK((options_.streams >= 1 && options_.streams <= kMostStreams));
  GYRE_CHECK((options_.open_blocks >= 1 && options_.open_blocks <= kMostOpenBlocks));
  const RandomKey order = derived(key, kOrderOfBlocks, 0);
  if (!options_.block_ends) {
    samples_.emplace(options_.count, order.seed, order.stream);
    return;
  }
  const std::vector<std::uint64_t>& ends = *options_.block_ends;
  GYRE_CHECK((!ends.empty() && ends.back() == options_.count));
  auto line = std::make_shared<Line>();
  line->blocks = permutation(ends.size(), order.seed, order.stream);
  line->ends.reserve(ends.size());
  std::uint64_t end = 0;
  for (const std::uint64_t block : line->blocks)
    line->ends.push_back(end += ends[block] - (block == 0 ? 0 : ends[block - 1]));
  line_ = std::move(line);
}

BlockShuffle::Part BlockShuffle::part_of(std::uint64_t length, std::uint64_t parts, std::uint64_t index) {
  const std::uint64_t base = length / parts;
  const std::uint64_t extra = length % parts;
  return {index * base + std::min(index, extra), base + (index < extra ? 1 : 0)};
}

BlockShuffle::Part BlockShuffle::lane(std::uint64_t stream, std::uint64_t lane) const {
  const Part whole = part_of(options_.count, options_.streams, stream);
  const Part part = part_of(whole.size, options_.open_blocks, lane);
  return {whole.begin + part.begin, part.size};
}

std::uint64_t BlockShuffle::place_in_line(std::uint64_t stream, std::uint64_t lane, std::uint64_t round) const {
  const Part part = this->lane(stream, lane);
  const bool backwards = (stream * options_.open_blocks + lane) % 2 == 1;
  return backwards ? part.begin + part.size - 1 - round : part.begin + round;
}

BlockShuffle::Round BlockShuffle::round_of(std::uint64_t stream, std::uint64_t number) const {
  const std::uint64_t left = part_of(options_.count, options_.streams, stream).size - number * options_.open_blocks;
  Round round{.stream = stream,
              .number = number,
              .lanes = static_cast<std::size_t>(std::min(options_.open_blocks, left)),
              .order = {}};
  const RandomKey key = derived(derived(key_, kStream, stream), kRound, number);
  Random random(key.seed, key.stream);
  for (std::size_t i = 0; i < round.lanes; ++i) round.order.at(i) = static_cast<std::uint8_t>(i);
  for (std::size_t i = round.lanes; i > 1; --i) {
    std::swap(round.order.at(i - 1), round.order.at(static_cast<std::size_t>(random.below(i))));
  }
  return round;
}

std::uint64_t BlockShuffle::sample_at_place(std::uint64_t place) const {
  if (samples_) return samples_->at(place);
  const auto found = std::ranges::upper_bound(line_->ends, place);
  const auto index = static_cast<std::size_t>(found - line_->ends.begin());
  const std::uint64_t begin_in_line = index == 0 ? 0 : line_->ends[index - 1];
  const std::uint64_t block = line_->blocks[index];
  const std::uint64_t begin = block == 0 ? 0 : (*options_.block_ends)[block - 1];
  const RandomKey key = derived(key_, kWithinBlock, block);
  return begin + Shuffle(*found - begin_in_line, key.seed, key.stream).at(place - begin_in_line);
}

std::uint64_t BlockShuffle::at(std::uint64_t position, Round& round) const {
  GYRE_CHECK(position < options_.count);
  const std::uint64_t stream = position % options_.streams;
  const std::uint64_t drawn = position / options_.streams;
  const std::uint64_t number = drawn / options_.open_blocks;
  if (round.lanes == 0 || round.stream != stream || round.number != number) round = round_of(stream, number);
  const std::uint64_t lane = round.order.at(static_cast<std::size_t>(drawn % options_.open_blocks));
  return sample_at_place(place_in_line(stream, lane, number));
}

std::uint64_t BlockShuffle::at(std::uint64_t position) const {
  Round round;
  return at(position, round);
}

std::uint64_t BlockShuffle::left_in_block(std::uint64_t place, bool backwards) const {
  if (samples_) return 1;
  const auto found = std::ranges::upper_bound(line_->ends, place);
  if (!backwards) return *found - place;
  return place + 1 - (found == line_->ends.begin() ? 0 : *(found - 1));
}

std::vector<std::uint64_t> BlockShuffle::upcoming(std::uint64_t position, std::size_t most, std::uint64_t first,
                                                  std::uint64_t streams) const {
  const std::uint64_t round = position / options_.streams / options_.open_blocks;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;  // Rounds until it is drawn, and place in the line.
  for (std::uint64_t stream = first; stream < first + streams; ++stream) {
    for (std::uint64_t lane = 0; lane < options_.open_blocks; ++lane) {
      const std::uint64_t size = this->lane(stream, lane).size;
      if (round >= size) continue;
      const std::uint64_t place = place_in_line(stream, lane, round);
      places.emplace_back(0, place);
      const bool backwards = (stream * options_.open_blocks + lane) % 2 == 1;
      const std::uint64_t rounds = left_in_block(place, backwards);
      if (round + rounds < size) places.emplace_back(rounds, place_in_line(stream, lane, round + rounds));
    }
  }
  std::ranges::sort(places);
  places.resize(std::min(places.size(), most));
  std::vector<std::uint64_t> samples;
  samples.reserve(places.size());
  for (const auto& [rounds, place] : places) samples.push_back(sample_at_place(place));
  return samples;
}

}  // namespace gyre::data
