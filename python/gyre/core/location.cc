#include "python/gyre/core/location.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

namespace gyre::python {

namespace nb = nanobind;

std::string find_location() {
  if (!nb::is_alive() || Py_IsInitialized() == 0) return {};
  const nb::gil_scoped_acquire gil;
  // By name, so that nothing here owns an object of an interpreter that may end first.
  return nb::cast<std::string>(nb::module_::import_("gyre._program_position").attr("describe")());
}

std::vector<engine::ProgramThread> find_threads() {
  if (!nb::is_alive() || Py_IsInitialized() == 0) return {};
  const nb::gil_scoped_acquire gil;
  using Described = std::tuple<int, std::string, bool>;
  std::vector<engine::ProgramThread> threads;
  const nb::object found = nb::module_::import_("gyre._program_position").attr("threads")();
  for (auto& [number, description, serves_library] : nb::cast<std::vector<Described>>(found)) {
    threads.push_back({number, std::move(description), serves_library});
  }
  return threads;
}

std::shared_ptr<engine::internal::ProcessWaits> process_waits() {
  static const auto waits = engine::make_process_waits(find_threads);
  return waits;
}

}  // namespace gyre::python
