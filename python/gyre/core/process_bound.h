#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/engine/runtime.h"

namespace gyre::python {

/// getpid() without its system call, which takes a fifth of a microsecond: it is asked for every operation and
/// gradient.
pid_t own_process();

/// Owns an object whose threads exist only in the process that made it. A fork of that process inherits the memory
/// but not the threads: there it may neither be used nor destroyed.
template <typename Object>
class ProcessBound {
 public:
  explicit ProcessBound(std::unique_ptr<Object> object)
      : process_(own_process()), object_(object.release(), [process = process_](Object* pointer) {
          if (own_process() == process) destroy(pointer);
        }) {}

  /// Whether this process made it.
  bool is_here() const { return own_process() == process_; }

  Object& get() const {
    if (const pid_t here = own_process(); here != process_) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("process {} is a fork of process {}, which is the member of the job. A forked process "
                              "(a DataLoader worker, say) cannot take part in collectives; do that in the process "
                              "that called init().",
                              here, process_));
    }
    return *object_;
  }
  const std::shared_ptr<Object>& shared() const { return object_; }

 private:
  /// Ending a plan may wait for other ranks: not with the GIL held, if this thread holds it.
  static void destroy(Object* pointer) {
    if (PyGILState_Check() == 0) {
      delete pointer;
      return;
    }
    const nanobind::gil_scoped_release released;
    delete pointer;
  }

  pid_t process_;
  std::shared_ptr<Object> object_;
};

using RuntimeOwner = ProcessBound<engine::Runtime>;

using Address = std::uintptr_t;
using AddressRange = std::pair<Address, std::size_t>;

inline std::span<std::byte> to_span(AddressRange range) {
  return {reinterpret_cast<std::byte*>(range.first), range.second};
}

/// Error(kInvalidArgument) for a number that is none.
engine::DataType to_data_type(int number);

}  // namespace gyre::python
