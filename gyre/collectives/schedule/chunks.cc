#include "gyre/collectives/schedule/chunks.h"

#include <algorithm>

#include "gyre/base/check.h"

namespace gyre::collectives {

ElementRange even_chunk(std::size_t count, int chunks, int index, std::size_t granularity) {
  GYRE_CHECK(chunks >= 1);
  GYRE_CHECK(index >= 0);
  GYRE_CHECK(index < chunks);
  GYRE_CHECK(granularity >= 1u);
  const std::size_t units = count / granularity + (count % granularity != 0 ? 1 : 0);
  const auto parts = static_cast<std::size_t>(chunks);
  const std::size_t each = units / parts;
  const std::size_t larger = units % parts;
  const auto start_of = [&](std::size_t chunk) {
    return std::min(count, (chunk * each + std::min(chunk, larger)) * granularity);
  };
  const auto chunk = static_cast<std::size_t>(index);
  const std::size_t begin = start_of(chunk);
  return {.begin = begin, .count = start_of(chunk + 1) - begin};
}

std::vector<ElementRange> even_chunks(std::size_t count, int chunks, std::size_t granularity) {
  GYRE_CHECK(chunks >= 1);
  std::vector<ElementRange> result;
  result.reserve(static_cast<std::size_t>(chunks));
  for (int index = 0; index < chunks; ++index) result.push_back(even_chunk(count, chunks, index, granularity));
  return result;
}

std::vector<ElementRange> ragged_chunks(std::span<const std::size_t> counts) {
  std::vector<ElementRange> result;
  result.reserve(counts.size());
  std::size_t begin = 0;
  for (const std::size_t count : counts) {
    result.push_back({.begin = begin, .count = count});
    begin += count;
  }
  return result;
}

}  // namespace gyre::collectives
