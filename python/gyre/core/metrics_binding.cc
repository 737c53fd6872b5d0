#include "python/gyre/core/metrics_binding.h"

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
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
#include "python/gyre/core/interruptible.h"
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

/// gyre.log's side of a rank, and what counts in it: the engines of all groups that it is in. Used with the GIL held.
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
  void joined(const RuntimeOwner& runtime) {
    if (own_process() == process_) runtimes_.emplace_back(runtime.shared());
  }
  /// What it has counted stays. To be called before its shutdown.
  void leaving(const RuntimeOwner& runtime) {
    if (own_process() != process_) return;
    const auto is_it = [&](const auto& known) { return known.lock() == runtime.shared(); };
    if (std::ranges::none_of(runtimes_, is_it)) return;
    log_engines();
    const auto statistics = runtime.get().engine().statistics();
    if (std::erase_if(runtimes_, is_it) > 0) ended_.add(statistics);
  }
  /// Not more often than once in kEngineInterval.
  void log_engine(std::int64_t step) {
    step_ = step;
    log_engine_when_due();
  }
  void log_engine_when_due() {
    if (SteadyClock::now() >= engine_due_ && own_process() == process_) log_engines();
  }
  bool flush(double seconds) {
    const nb::gil_scoped_release released;
    return logger_->flush(Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3))));
  }

 private:
  void log_engines() {
    engine_due_ = SteadyClock::now() + kEngineInterval;
    engine::Costs costs = ended_;
    std::vector<std::shared_ptr<engine::Runtime>> runtimes;
    for (const auto& runtime : runtimes_) {
      if (auto alive = runtime.lock()) runtimes.push_back(std::move(alive));
    }
    if (runtimes.empty()) return;
    const nb::gil_scoped_release released;
    for (auto& runtime : runtimes) costs.add(runtime->engine().statistics());
    runtimes.clear();
    logger_->log_own(costs.values(), step_);
  }

  const pid_t process_ = own_process();
  std::shared_ptr<metrics::Logger> logger_;
  std::vector<std::weak_ptr<engine::Runtime>> runtimes_;
  engine::Costs ended_;
  std::int64_t step_ = 0;
  SteadyClock::time_point engine_due_{};
};

}  // namespace

void bind_metrics(nb::module_& module) {
  using nb::arg;
  nb::class_<BoundLogger>(module, "MetricsLogger", "This rank's way to the file of `gyre run --metrics`.")
      .def_prop_ro("rank", &BoundLogger::rank)
      .def("log", &BoundLogger::log, arg("values"), arg("step"), "Names and numbers. Never waits.")
      .def("joined", &BoundLogger::joined, arg("runtime"), "What its engine counts belongs to this rank's metrics.")
      .def("leaving", &BoundLogger::leaving, arg("runtime"), "Logs what all have counted; nothing if it is unknown.")
      .def("log_engine", &BoundLogger::log_engine, arg("step"), "What engines have counted; at most once a second.")
      .def("flush", &BoundLogger::flush, arg("seconds"), "Whether the launcher can read all of it now.");
  module.def(
      "metrics_logger",
      []() -> nb::object {
        auto logger = group::metrics_logger_from_environment();
        if (!logger) return nb::none();
        const auto bound = std::make_shared<BoundLogger>(std::move(logger));
        // A rank that waits for others calls nothing, and how long it waits is what its watchers want to know.
        call_while_waiting([weak = std::weak_ptr(bound)] {
          if (const auto alive = weak.lock()) alive->log_engine_when_due();
        });
        return nb::cast(bound);
      },
      "That of this process; None where no `gyre run --metrics` has started it.");
}

}  // namespace gyre::python
