#include "python/gyre/core/location.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace gyre::python {

namespace nb = nanobind;

std::string find_location() {
  if (!nb::is_alive() || Py_IsInitialized() == 0) return {};
  const nb::gil_scoped_acquire gil;
  // By name, so that nothing here owns an object of an interpreter that may end first.
  return nb::cast<std::string>(nb::module_::import_("gyre._program_position").attr("describe")());
}

std::shared_ptr<engine::internal::ProcessWaits> process_waits() {
  static const auto waits = engine::make_process_waits();
  return waits;
}

}  // namespace gyre::python
