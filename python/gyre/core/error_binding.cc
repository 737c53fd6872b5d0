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

/// -1 with Python's error indicator set if `function`, of which it takes the reference, has raised something.
int call_and_release(void* function) {
  auto* callable = static_cast<PyObject*>(function);
  PyObject* result = PyObject_CallNoArgs(callable);
  Py_DECREF(callable);
  if (result == nullptr) return -1;
  Py_DECREF(result);
  return 0;
}

bool call_in_main_thread(const nanobind::callable& function) {
  PyObject* callable = nanobind::object(function).release().ptr();
  if (Py_AddPendingCall(call_and_release, callable) == 0) return true;
  Py_DECREF(callable);
  return false;
}

}  // namespace

void bind_errors(nanobind::module_& module) {
  nanobind::register_exception_translator(translate, nullptr);
  module.def("call_in_main_thread", call_in_main_thread, nanobind::arg("function"),
             "Calls it there as a signal's handler is called: between two instructions of Python, where what it raises "
             "is raised; not while that thread is inside a function of C. False if too many such calls wait.");
  module.def(
      "raise_in_thread",
      [](unsigned long thread, nanobind::handle kind) {
        PyThreadState_SetAsyncExc(thread, kind.is_none() ? nullptr : kind.ptr());
      },
      nanobind::arg("thread"), nanobind::arg("kind").none(),
      "The same of an exception's class, made without arguments when the thread gets there; None takes it back.");
}

}  // namespace gyre::python
