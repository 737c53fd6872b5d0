#pragma once

namespace gyre {

/// From now on malloc() keeps up to 64 MB of freed memory for the next to come, instead of giving it back to the kernel
/// and faulting it in again page by page, for blocks up to 32 MB. That is what glibc learns by itself from a program
/// that once frees a block of 32 MB (see M_MMAP_THRESHOLD in mallopt(3)); a training step, which frees each gradient as
/// soon as it is copied, is better off from the start. Limits that the user has set (MALLOC_TRIM_THRESHOLD_ …) and
/// other allocators stay as they are. Thread-safe.
void keep_freed_memory();

}  // namespace gyre
