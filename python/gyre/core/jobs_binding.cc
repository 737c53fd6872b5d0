#include "python/gyre/core/jobs_binding.h"

#include <nanobind/stl/string.h>

#include <filesystem>
#include <string>

#include "gyre/jobs/client/code_archive.h"

namespace gyre::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;
using jobs::client::CodeArchive;

/// `folder`: the bytes of its path, which need not be UTF-8.
CodeArchive archive_code(const nb::bytes& folder) {
  const std::filesystem::path path(std::string(folder.c_str(), folder.size()));
  const nb::gil_scoped_release others_run;
  return jobs::client::archive_code(path);
}

}  // namespace

void bind_jobs(nb::module_& module) {
  nb::class_<CodeArchive>(module, "CodeArchive", "See gyre/jobs/client/code_archive.h.")
      .def_prop_ro("data", [](const CodeArchive& self) { return nb::bytes(self.bytes.data(), self.bytes.size()); })
      .def_ro("sha256", &CodeArchive::sha256)
      .def_ro("files", &CodeArchive::files);
  module.def("archive_code", &archive_code, "folder"_a);
}

}  // namespace gyre::python
