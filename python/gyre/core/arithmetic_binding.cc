#include "python/gyre/core/arithmetic_binding.h"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/collectives/adaptive_sum.h"
#include "gyre/collectives/collectives.h"
#include "gyre/collectives/kernels.h"
#include "gyre/collectives/row_sums.h"
#include "python/gyre/core/process_bound.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;

void require(bool holds, const char* otherwise) {
  if (!holds) throw Error(ErrorCode::kInvalidArgument, otherwise);
}

collectives::Reduction to_reduction(int data_type, int operation, double prescale, double postscale) {
  const auto known = collectives::reduce_operation_from_number(static_cast<std::uint8_t>(operation));
  if (!known || operation != static_cast<int>(*known)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no reduction number {}", operation));
  }
  return {.type = to_data_type(data_type), .operation = *known, .prescale = prescale, .postscale = postscale};
}

void check_reduction(int data_type, int operation, double prescale, double postscale) {
  const std::string problem = collectives::reduction_problem(to_reduction(data_type, operation, prescale, postscale));
  if (!problem.empty()) throw Error(ErrorCode::kInvalidArgument, problem);
}

std::vector<const std::byte*> to_sources(const std::vector<AddressRange>& contributions, std::size_t size_bytes) {
  require(!contributions.empty(), "there are no contributions");
  std::vector<const std::byte*> sources;
  for (const AddressRange& contribution : contributions) {
    require(contribution.second == size_bytes, "a contribution has another size than the result");
    sources.push_back(to_span(contribution).data());
  }
  return sources;
}

void combine_contributions(AddressRange result, const std::vector<AddressRange>& contributions, int data_type,
                           int operation, double prescale, double postscale,
                           const std::vector<std::vector<int>>& hosts) {
  const auto is_rank = [&](int rank) { return rank >= 0 && static_cast<std::size_t>(rank) < contributions.size(); };
  for (const std::vector<int>& ranks : hosts) {
    require(!ranks.empty() && std::ranges::all_of(ranks, is_rank), "a host's ranks are not among the contributors");
  }
  const collectives::Reduction reduction = to_reduction(data_type, operation, prescale, postscale);
  const std::vector<const std::byte*> sources = to_sources(contributions, result.second);
  const nb::gil_scoped_release released;
  collectives::combine_contributions(to_span(result), sources, reduction, hosts);
}

void add_rows(AddressRange result, AddressRange rows, AddressRange places, std::size_t row_bytes, int data_type,
              int operation, double prescale, double postscale, int ranks) {
  const collectives::Reduction reduction = to_reduction(data_type, operation, prescale, postscale);
  const std::size_t count = places.second / sizeof(std::int64_t);
  require(rows.second == count * row_bytes && row_bytes % collectives::size_of(reduction.type) == 0,
          "the rows have another size than their places say");
  require(row_bytes == 0 ? result.second == 0 : result.second % row_bytes == 0, "the result has no whole rows");
  require(ranks >= 1, "there are no ranks");
  const nb::gil_scoped_release released;
  collectives::add_rows(to_span(result), to_span(rows),
                        {reinterpret_cast<const std::int64_t*>(to_span(places).data()), count}, row_bytes, reduction,
                        ranks);
}

void adaptive_sum(AddressRange result, int result_type, const std::vector<AddressRange>& contributions, int data_type,
                  double prescale, double postscale) {
  const engine::DataType type = to_data_type(data_type);
  const engine::DataType to = to_data_type(result_type);
  require(collectives::is_floating_point(type) && collectives::is_floating_point(to),
          "an adaptive sum needs floating-point types");
  const std::size_t count = result.second / collectives::size_of(to);
  const std::vector<const std::byte*> sources = to_sources(contributions, count * collectives::size_of(type));
  const nb::gil_scoped_release released;
  collectives::adaptive_sum({to_span(result).data(), to}, sources, type, count, prescale, postscale);
}

void multiply(AddressRange elements, int data_type, double factor) {
  const engine::DataType type = to_data_type(data_type);
  require(collectives::is_floating_point(type), "only floating-point elements are multiplied");
  const nb::gil_scoped_release released;
  collectives::scale_in_place(to_span(elements).data(), elements.second / collectives::size_of(type), type,
                              {.factor = factor});
}

}  // namespace

void bind_arithmetic(nb::module_& module) {
  module.def("check_reduction", &check_reduction, nb::arg("data_type"), nb::arg("operation"), nb::arg("prescale"),
             nb::arg("postscale"), "InvalidArgumentError if such elements cannot be reduced so.");
  module.def("combine_contributions", &combine_contributions, nb::kw_only(), nb::arg("result"),
             nb::arg("contributions"), nb::arg("data_type"), nb::arg("operation"), nb::arg("prescale") = 1.0,
             nb::arg("postscale") = 1.0, nb::arg("hosts") = std::vector<std::vector<int>>(),
             "What an allreduce of these (address, bytes), one per rank, gives, on this process alone. `hosts`: the "
             "ranks of\neach, in the order in which the hosts' values are combined; none: all ranks are on one.");
  module.def("add_rows", &add_rows, nb::kw_only(), nb::arg("result"), nb::arg("rows"), nb::arg("places"),
             nb::arg("row_bytes"), nb::arg("data_type"), nb::arg("operation"), nb::arg("prescale") = 1.0,
             nb::arg("postscale") = 1.0, nb::arg("ranks") = 1,
             "Row i of `rows` belongs to row places[i] (int64) of `result`, in which every row has at least one; each "
             "row of\nthe result is the reduction of its rows, in their order. All are (address, bytes).");
  module.def("adaptive_sum", &adaptive_sum, nb::kw_only(), nb::arg("result"), nb::arg("result_type"),
             nb::arg("contributions"), nb::arg("data_type"), nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0,
             "Adasum of these (address, bytes), one per rank, in float64, rounded once to the result's type.");
  module.def("multiply", &multiply, nb::arg("elements"), nb::arg("data_type"), nb::arg("factor"),
             "Multiplies floating-point elements (address, bytes) in place.");
}

}  // namespace gyre::python
