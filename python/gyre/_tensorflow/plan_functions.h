#pragma once

// How TensorFlow's ops reach the engine's plans, which are in another library (the extension module `_core`): a table
// of C functions, handed over when both are loaded. Plain C types, because the two may be built by different compilers.

#include <cstddef>
#include <cstdint>

// A plan is named by the number that `_core.lend_plan` gave it. Each function returns 0, or -1 and a message of at most
// `capacity` bytes with its end. Any thread may call them, without Python's lock.
extern "C" struct GyrePlanFunctions {
  // Copies this rank's gradient `index` into the plan's arena; the exchange may begin. Does not wait.
  int (*contribute)(std::int64_t plan, std::int64_t index, const void* data, std::size_t size_bytes, char* message,
                    std::size_t capacity);
  // Waits until all gradients of the step are reduced.
  int (*finish)(std::int64_t plan, char* message, std::size_t capacity);
  // The reduced gradient `index`, in the arena, with its shape. Until `give_back(loan)` the bytes keep their values,
  // even if the next step begins, and may be written to.
  int (*lend)(std::int64_t plan, std::int64_t index, void** data, std::size_t* size_bytes, const std::int64_t** shape,
              int* dimensions, void** loan, char* message, std::size_t capacity);
  void (*give_back)(void* loan);
};
