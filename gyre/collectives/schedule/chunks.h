#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gyre/collectives/data_type.h"

namespace gyre::collectives {

/// Elements begin … begin + count - 1 of a buffer; offsets are elements, never bytes.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t count = 0;

  std::size_t end() const { return begin + count; }
  bool operator==(const ElementRange&) const = default;
};

constexpr std::size_t kCacheLineBytes = 64;

/// Elements of `type` in one cache line: the granularity for chunks that different ranks write.
inline std::size_t elements_per_cache_line(DataType type) { return kCacheLineBytes / size_of(type); }

/// Chunk `index` of `chunks` when `count` elements are dealt out evenly, in order, without a gap.
/// Rank r owns chunk r wherever chunks belong to ranks. Every boundary but the last end is a multiple
/// of `granularity`; with u = ceil(count / granularity) units, the first u mod chunks chunks hold one
/// unit more than the others. With fewer units than chunks the last ones are empty (begin == count).
///
///   10 elements, 4 chunks, granularity 1:  [0,3) [3,6) [6,8) [8,10)
///   10 elements, 4 chunks, granularity 4:  [0,4) [4,8) [8,10) [10,10)
///
/// Pure. Needs chunks >= 1, 0 <= index < chunks, granularity >= 1.
ElementRange even_chunk(std::size_t count, int chunks, int index, std::size_t granularity = 1);

/// All of them: even_chunk for 0 … chunks - 1.
std::vector<ElementRange> even_chunks(std::size_t count, int chunks, std::size_t granularity = 1);

/// The ranges of chunks of the given sizes laid end to end: ragged allgather, all-to-all with splits.
std::vector<ElementRange> ragged_chunks(std::span<const std::size_t> counts);

}  // namespace gyre::collectives
