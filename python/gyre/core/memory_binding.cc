#include "python/gyre/core/memory_binding.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "gyre/base/checksum.h"
#include "gyre/base/fork.h"
#include "python/gyre/core/process_bound.h"

namespace gyre::python {
namespace {

int export_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Memory& memory = *nanobind::inst_ptr<Memory>(nanobind::handle(self));
  return PyBuffer_FillInfo(view, self, memory.bytes.data(), static_cast<Py_ssize_t>(memory.bytes.size()),
                           /*readonly=*/0, flags);
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(export_buffer)}, {0, nullptr}};

/// The old values need neither the plan nor its arena.
void keep_values(Memory& memory) {
  if (memory.window == nullptr) return;
  memory.window->keep_values();
  memory.owner.reset();
}

}  // namespace

void bind_memory(nanobind::module_& module) {
  nanobind::class_<Memory>(module, "Memory", nanobind::type_slots(memory_slots),
                           "Writable bytes of the engine, seen through the buffer protocol.")
      .def("__len__", [](const Memory& self) { return self.bytes.size(); })
      .def_prop_ro("address", [](const Memory& self) { return reinterpret_cast<std::uintptr_t>(self.bytes.data()); })
      .def("keep_values", &keep_values,
           "Every view of these bytes goes on showing the values of this moment; what is done in the arena is not seen "
           "any more. Does nothing for a result, which is nobody else's.");
  nanobind::class_<PrivateInForks>(
      module, "PrivateInForks", "While it lives, forks of this process get private pages in the place of shared ones.")
      .def(nanobind::new_([](AddressRange memory, int descriptor) {
             return std::make_unique<PrivateInForks>(PrivateInForks::while_open(to_span(memory), descriptor));
           }),
           nanobind::arg("memory"), nanobind::arg("descriptor"),
           "`memory`: (address, bytes) of a mapping of the whole file behind the descriptor, whose owner closes the\n"
           "descriptor before it unmaps them: from then on forks leave these addresses alone.");
  module.def(
      "hash_memory",
      [](AddressRange memory) {
        const nanobind::gil_scoped_release released;
        return xxh3_64(to_span(memory));
      },
      nanobind::arg("memory"), "XXH3-64 of (address, bytes): equal bytes on two ranks have equal hashes.");
}

}  // namespace gyre::python
