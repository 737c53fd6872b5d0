#include "python/gyre/core/memory_binding.h"

namespace gyre::python {
namespace {

int export_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Memory& memory = *nanobind::inst_ptr<Memory>(nanobind::handle(self));
  return PyBuffer_FillInfo(view, self, memory.bytes.data(), static_cast<Py_ssize_t>(memory.bytes.size()),
                           /*readonly=*/0, flags);
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(export_buffer)}, {0, nullptr}};

}  // namespace

void bind_memory(nanobind::module_& module) {
  nanobind::class_<Memory>(module, "Memory", nanobind::type_slots(memory_slots),
                           "Writable bytes of the engine, seen through the buffer protocol.")
      .def("__len__", [](const Memory& self) { return self.bytes.size(); })
      .def_prop_ro("address", [](const Memory& self) { return reinterpret_cast<std::uintptr_t>(self.bytes.data()); });
}

}  // namespace gyre::python
