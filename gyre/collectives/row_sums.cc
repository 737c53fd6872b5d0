#include "gyre/collectives/row_sums.h"

#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "gyre/base/check.h"
#include "gyre/base/error.h"
#include "gyre/collectives/internal/kernels/reduction_plan.h"
#include "gyre/collectives/kernels.h"

namespace gyre::collectives {

void add_rows(std::span<std::byte> result, std::span<const std::byte> rows, std::span<const std::int64_t> places,
              std::size_t row_bytes, const Reduction& reduction, int ranks) {
  const internal::ReductionPlan plan = internal::plan_reduction(reduction, ranks);
  GYRE_CHECK(rows.size() == places.size() * row_bytes);
  if (row_bytes == 0) return;
  GYRE_CHECK(row_bytes % size_of(plan.type) == 0U);
  const std::size_t count = result.size() / row_bytes;
  // The rows by their places, in their own order: where each place's begin, and which they are.
  std::vector<std::size_t> begins(count + 1);
  for (const std::int64_t place : places) {
    if (place < 0 || static_cast<std::size_t>(place) >= count) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("row {} of a result of {} rows", place, count));
    }
    ++begins[static_cast<std::size_t>(place) + 1];
  }
  for (std::size_t place = 0; place < count; ++place) {
    if (begins[place + 1] == 0) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("nothing for row {} of a result of {} rows", place, count));
    }
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<const std::byte*> sources(places.size());
  std::vector<std::size_t> next(begins.begin(), begins.end() - 1);
  for (std::size_t row = 0; row < places.size(); ++row) {
    sources[next[static_cast<std::size_t>(places[row])]++] = rows.data() + row * row_bytes;
  }
  for (std::size_t place = 0; place < count; ++place) {
    const std::span<const std::byte* const> own =
        std::span(sources).subspan(begins[place], begins[place + 1] - begins[place]);
    reduce(result.data() + place * row_bytes, own, plan.elements_in(row_bytes), plan.type, plan.operation,
           plan.scaling);
  }
}

}  // namespace gyre::collectives
