// The module that a test loads: it makes the device known to torch, and controls its schedule.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "tests/device/device.h"
#include "tests/device/stand_in.h"

namespace py = pybind11;
using namespace gyre::test_device;

PYBIND11_MODULE(gyre_test_device, module) {
  module.attr("devices") = kDevices;
  module.def(
      "set_schedule", [](double eagerness, unsigned seed) { world().set_schedule(eagerness, seed); },
      py::arg("eagerness"), py::arg("seed") = 0,
      "0: nothing runs until the host waits; else how probable it is that a queued step sets off others");
  module.def("counters", [] {
    const Counters now = world().counters();
    py::dict counters;
    counters["kernels"] = now.kernels;
    counters["host_waits"] = now.host_waits;
    counters["stream_waits"] = now.stream_waits;
    counters["pending"] = now.pending;
    return counters;
  });
  module.def(
      "pin", [](uintptr_t memory, size_t bytes) { pin(reinterpret_cast<const void*>(memory), bytes); },
      "Host memory of the program's own, from now on pinned; whoever pins it keeps it until the copies have run");
  module.def(
      "hang", [](int device) { hang(current_stream(static_cast<c10::DeviceIndex>(device))); }, py::arg("device"),
      "From here on nothing on this stream runs any more, as after a kernel that never ends");
  module.def("unpin", [](uintptr_t memory) { unpin(reinterpret_cast<const void*>(memory)); });
  module.def("stand_in", &make_stand_in, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
             py::call_guard<py::gil_scoped_release>(), "A backend for tensors of this device, as NCCL is one for GPUs");
  module.def("stand_in_calls", &stand_in_calls, "The operations that this process has passed to stand-ins");
}
