#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/metrics/sample.h"

// The blocks of a metrics file, which are also what ranks send to their launcher: docs/formats/metrics.md.

namespace gyre::metrics {

constexpr std::size_t kBlockHeader = 8;
constexpr std::size_t kMostBodyBytes = std::size_t{64} << 10;

enum class BlockKind : std::uint8_t { kSamples = 1, kNote = 2, kEvent = 3 };

/// The names that earlier blocks have numbered, when blocks are written: 0, 1, … in the order of their appearance.
using NameNumbers = std::map<std::string, std::uint64_t, std::less<>>;

/// As many of the first `samples` as fit into one block of `most_bytes`, its header included: at least one where that
/// is 512. Preconditions: `samples` is not empty; the names are names, and ranks not negative.
struct EncodedSamples {
  Bytes block;
  std::size_t count = 0;
  std::vector<std::string_view> new_names;  ///< Numbered by this block, from names.size().
};
EncodedSamples encode_samples(std::span<const Sample> samples, const NameNumbers& names, std::size_t most_bytes);

/// Error(kInvalidArgument) if it is too long for a block.
Bytes encode_note(std::string_view key, std::string_view value);

/// Error(kInvalidArgument) if it is too long for a block.
Bytes encode_event(std::string_view line);

/// The body of the block that `bytes` begin with; nothing if it is not whole, too large, or fails its checksum.
std::optional<std::span<const std::byte>> body_of_first_block(std::span<const std::byte> bytes);

/// What a block holds. Views into its body, and into `names`.
struct DecodedBlock {
  std::vector<Sample> samples;
  std::optional<std::pair<std::string_view, std::string_view>> note;
  std::optional<std::string_view> event;
};

/// `names`: of the blocks before this one, by number; gets the new ones. A kind that is not known is an empty block.
/// Error(kCorruptData), and `names` may then have new ones.
DecodedBlock decode_block(std::span<const std::byte> body, std::vector<std::string>& names);

}  // namespace gyre::metrics
