#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gyre/data/sample_set.h"

namespace gyre::data::internal {

/// Cuts a file that can be read at any place into blocks of about `block_bytes` and of equal length, and appends their
/// ends. `samples` follow the last end; `end_bytes` of one of them, counted from 0, is where it ends in the file.
void append_blocks(std::vector<std::uint64_t>& ends, std::uint64_t samples,
                   const std::function<std::uint64_t(std::uint64_t)>& end_bytes,
                   std::uint64_t block_bytes = kBlockBytes);

/// The set's blocks; ends that are those of all samples become null.
SampleBlocks blocks_of(std::vector<std::uint64_t> ends, std::uint64_t largest_bytes);

}  // namespace gyre::data::internal
