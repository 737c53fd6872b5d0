#include "python/gyre/core/error_binding.h"

#include <exception>
#include <string>

#include "gyre/base/error.h"

namespace gyre::python {
namespace {

/// Sets Python's error indicator; when gyre.errors cannot be used, to what kept it from being used.
void raise_in_python(const Error& error) {
  PyObject* module = PyImport_ImportModule("gyre.errors");
  if (module == nullptr) return;
  const std::string code(error_code_name(error.code()));
  // Messages may carry a peer's words; "replace" keeps bytes that are not UTF-8 from hiding the failure.
  const std::string text(error.what());
  PyObject* message = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  PyObject* exception =
      message == nullptr ? nullptr : PyObject_CallMethod(module, "error_from_code", "sO", code.c_str(), message);
  if (exception != nullptr) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  Py_XDECREF(exception);
  Py_XDECREF(message);
  Py_DECREF(module);
}

void translate(const std::exception_ptr& failure, void* /*payload*/) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    raise_in_python(error);
  }
}

}  // namespace

void bind_errors(nanobind::module_& /*module*/) { nanobind::register_exception_translator(translate, nullptr); }

}  // namespace gyre::python
