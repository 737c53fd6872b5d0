#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <span>

#include "gyre/net/window.h"

namespace gyre::python {

/// Writable bytes that Python sees through the buffer protocol: a result that the engine allocated, or a tensor's place
/// in a plan's arena. Every view of them (memoryview, torch tensor, NumPy array) keeps `owner` and `window` alive.
struct Memory {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> owner;
  std::shared_ptr<net::Window> window{};  ///< That the bytes are seen through, in an arena.
};

void bind_memory(nanobind::module_& module);

}  // namespace gyre::python
