#include "python/gyre/core/metrics_binding.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/engine/metrics.h"
#include "gyre/group/launched_metrics.h"
#include "gyre/metrics/pipe.h"
#include "python/gyre/core/process_bound.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;

constexpr std::chrono::seconds kEngineInterval{1};

std::string_view name_of(nb::handle key) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(key.ptr()) ? PyUnicode_AsUTF8AndSize(key.ptr(), &size) : nullptr;
  if (text != nullptr) return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();
  throw nb::type_error("gyre.log takes a dictionary of names, which are strings, and numbers");
}

/// A tensor's item() says nothing where it belongs to a graph of autograd, as float() does.
double as_double(nb::handle value) {
  if (PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr()) || !nb::hasattr(value, "item")) {
    return PyFloat_AsDouble(value.ptr());
  }
  PyObject* item = PyObject_CallMethod(value.ptr(), "item", nullptr);
  return item == nullptr ? -1.0 : PyFloat_AsDouble(nb::steal(item).ptr());
}

double number_of(std::string_view name, nb::handle value) {
  const double number = as_double(value);
  if (number != -1.0 || PyErr_Occurred() == nullptr) return number;
  nb::raise_from(*std::make_unique<nb::python_error>(), PyExc_TypeError,
                 "gyre.log: '%s' has a value that is not a number", std::string(name).c_str());
  return 0;
}

/// gyre.log's side of a rank. Used with the GIL held.
class BoundLogger {
 public:
  explicit BoundLogger(std::shared_ptr<metrics::Logger> logger) : logger_(std::move(logger)) {}

  int rank() const { return logger_->rank(); }
  void log(const nb::dict& values, std::int64_t step) {
    std::vector<metrics::Value> numbers;
    numbers.reserve(values.size());
    for (const auto& [key, value] : values) {
      const std::string_view name = name_of(key);
      numbers.push_back({name, number_of(name, value)});
    }
    logger_->log(numbers, step);
  }
  /// Not more often than once in kEngineInterval, unless it is `last`.
  void log_engine(const RuntimeOwner& runtime, std::int64_t step, bool last) {
    const auto now = SteadyClock::now();
    if (!runtime.is_here() || (!last && now < engine_due_)) return;
    engine_due_ = now + kEngineInterval;
    const nb::gil_scoped_release released;
    logger_->log_own(engine::metrics_of(runtime.get().engine().statistics()), step);
  }
  bool flush(double seconds) {
    const nb::gil_scoped_release released;
    return logger_->flush(Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3))));
  }

 private:
  std::shared_ptr<metrics::Logger> logger_;
  SteadyClock::time_point engine_due_{};
};

}  // namespace

void bind_metrics(nb::module_& module) {
  using nb::arg;
  nb::class_<BoundLogger>(module, "MetricsLogger", "This rank's way to the file of `gyre run --metrics`.")
      .def_prop_ro("rank", &BoundLogger::rank)
      .def("log", &BoundLogger::log, arg("values"), arg("step"), "Names and numbers. Never waits.")
      .def("log_engine", &BoundLogger::log_engine, arg("runtime"), arg("step"), arg("last"),
           "What the runtime has counted; at most once a second, unless it is the last time.")
      .def("flush", &BoundLogger::flush, arg("seconds"), "Whether the launcher can read all of it now.");
  module.def(
      "metrics_logger",
      []() -> nb::object {
        auto logger = group::metrics_logger_from_environment();
        return logger ? nb::cast(BoundLogger(std::move(logger))) : nb::none();
      },
      "That of this process; None where no `gyre run --metrics` has started it.");
}

}  // namespace gyre::python
